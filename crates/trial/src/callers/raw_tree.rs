//! Call chains before they have names: interned, so that millions of samples need room for their different chains only.

use std::collections::HashMap;

/// A place in code, before it has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// In a file: the module's place and the address that the linker gave.
    Module {
        /// Place in the list of modules.
        module: usize,
        /// Address.
        address: u64,
    },
    /// Outside of files, perhaps written by a just-in-time compiler.
    Anonymous {
        /// The process.
        pid: i32,
        /// Address there.
        address: u64,
    },
    /// The outermost calls of a chain that could not be followed to its end.
    Cut,
}

/// The tree.
#[derive(Debug, Default)]
pub struct RawTree {
    calls: Vec<(Option<usize>, Code)>,
    places: HashMap<(Option<usize>, Code), usize>,
}

impl RawTree {
    /// The call at the inner end of a chain that is given from the outermost call inwards; none for an empty chain.
    pub fn call(&mut self, chain: impl IntoIterator<Item = Code>) -> Option<usize> {
        let mut parent = None;
        for code in chain {
            let key = (parent, code);
            let place = *self.places.entry(key).or_insert_with(|| {
                self.calls.push(key);
                self.calls.len() - 1
            });
            parent = Some(place);
        }
        parent
    }

    /// Caller and code of each call; a caller stands before what it calls.
    #[must_use]
    pub fn calls(&self) -> &[(Option<usize>, Code)] {
        &self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_their_outer_calls() {
        let code = |address| Code::Module { module: 0, address };
        let mut tree = RawTree::default();
        let first = tree.call([code(1), code(2), code(3)]);
        let second = tree.call([code(1), code(2), code(4)]);
        assert_eq!(tree.call([code(1), code(2), code(3)]), first);
        assert_ne!(first, second);
        assert_eq!(tree.calls().len(), 4);
        assert_eq!(tree.call([]), None);
        assert!(
            tree.calls()
                .iter()
                .enumerate()
                .all(|(place, (parent, _))| parent.is_none_or(|parent| parent < place))
        );
    }
}
