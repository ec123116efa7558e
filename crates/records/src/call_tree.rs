//! Call chains with names, as they are saved: a tree of calls, each parent once.

use serde::{Deserialize, Serialize};

/// Call chains of one or several processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallTree {
    /// Programs and libraries.
    pub modules: Vec<CallModule>,
    /// Places in code, each once.
    pub frames: Vec<CallFrame>,
    /// Calls. A parent stands before its children.
    pub calls: Vec<Call>,
}

/// A program or library.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallModule {
    /// Path, as the process saw it.
    pub path: String,
    /// Build id in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Why its names are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A place in code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct CallFrame {
    /// Function, as its language writes it; none where it has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Index of the module; none for code outside of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<usize>,
    /// Address as the linker gave it; in the process where there is no module.
    pub offset: u64,
    /// The function was inlined into its caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_inlined: bool,
}

/// A call: what was called, and by which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// Index of the caller's call, lower than its own; none for the outermost.
    pub parent: Option<usize>,
    /// Index of the place in code.
    pub frame: usize,
}

impl CallTree {
    /// Whether every index leads somewhere, and every parent stands before its child.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let mut calls = self.calls.iter().enumerate();
        if let Some((place, _)) = calls.find(|(place, call)| {
            call.frame >= self.frames.len() || call.parent.is_some_and(|parent| parent >= *place)
        }) {
            return Err(format!("call {place} names a frame or a caller that is not there"));
        }
        let no_module = |frame: &CallFrame| frame.module.is_some_and(|module| module >= self.modules.len());
        match self.frames.iter().position(no_module) {
            Some(place) => Err(format!("frame {place} names a module that is not there")),
            None => Ok(()),
        }
    }

    /// The calls from this one outwards.
    pub fn outwards(&self, call: Option<usize>) -> impl Iterator<Item = &CallFrame> {
        let mut next = call;
        std::iter::from_fn(move || {
            let call = self.calls.get(next?)?;
            next = call.parent;
            self.frames.get(call.frame)
        })
    }

    /// Name of a frame's function; where it has none, module and offset.
    #[must_use]
    pub fn name(&self, frame: &CallFrame) -> String {
        match (&frame.function, self.module_name(frame)) {
            (Some(function), _) => function.clone(),
            (None, Some(module)) => format!("{module}+{:#x}", frame.offset),
            (None, None) => format!("{:#x}", frame.offset),
        }
    }

    /// File name of a frame's module.
    #[must_use]
    pub fn module_name(&self, frame: &CallFrame) -> Option<&str> {
        let path = &self.modules.get(frame.module?)?.path;
        Some(path.rsplit('/').next().unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: Option<&str>, module: Option<usize>) -> CallFrame {
        CallFrame {
            function: function.map(str::to_owned),
            file: None,
            line: None,
            module,
            offset: 0x1f0,
            is_inlined: false,
        }
    }

    fn tree() -> CallTree {
        CallTree {
            modules: vec![CallModule { path: "/usr/lib/libx.so".into(), build_id: None, trouble: None }],
            frames: vec![frame(Some("main"), Some(0)), frame(None, Some(0)), frame(None, None)],
            calls: vec![Call { parent: None, frame: 0 }, Call { parent: Some(0), frame: 1 }],
        }
    }

    #[test]
    fn a_frame_without_name_is_module_and_offset() {
        let tree = tree();
        tree.check().unwrap();
        let names: Vec<String> = tree.outwards(Some(1)).map(|frame| tree.name(frame)).collect();
        assert_eq!(names, ["libx.so+0x1f0", "main"]);
        assert_eq!(tree.name(&tree.frames[2]), "0x1f0");
        assert_eq!(tree.outwards(None).count(), 0);
    }

    #[test]
    fn indices_that_lead_nowhere_are_refused_and_never_followed() {
        let mut circle = tree();
        circle.calls[0].parent = Some(1);
        assert!(circle.check().is_err());
        let mut gone = tree();
        gone.frames[1].module = Some(7);
        assert!(gone.check().unwrap_err().contains("frame 1"));
        assert_eq!(gone.name(&gone.frames[1]), "0x1f0");
        gone.calls[1].frame = 9;
        assert!(gone.check().unwrap_err().contains("call 1"));
    }
}
