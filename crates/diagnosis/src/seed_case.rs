//! The figures of one contender in one case of the suite `seeds`, and those it is held against.

use faultless_records::bench::{Campaign, Cell, Contender, Figures, Sample, Suite};

use crate::spread::Spread;
use crate::standing::{Cost, Ratio};

/// One run that has figures.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    sample: &'a Sample,
    /// What it used.
    pub figures: &'a Figures,
}

impl Run<'_> {
    /// A figure that the program reported beyond those of all.
    #[must_use]
    pub fn mark(&self, name: &str) -> Option<f64> {
        self.sample.marks.get(name).copied()
    }
}

/// A figure of a run, where it has it.
pub type Pick<'a> = &'a dyn Fn(Run) -> Option<f64>;

/// One contender in one cell.
pub struct Case<'a> {
    campaign: &'a Campaign,
    cell: usize,
    contender: usize,
}

impl<'a> Case<'a> {
    /// REQUIRES: both indices are the campaign's.
    #[must_use]
    pub fn new(campaign: &'a Campaign, cell: usize, contender: usize) -> Self {
        Self { campaign, cell, contender }
    }

    /// The cell.
    #[must_use]
    pub fn cell(&self) -> &'a Cell {
        &self.campaign.cells[self.cell]
    }

    /// The contender.
    #[must_use]
    pub fn contender(&self) -> &'a Contender {
        &self.campaign.contenders[self.contender]
    }

    /// Its number of threads; 1 where the cell has none.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.cell().threads.unwrap_or(1)
    }

    /// Bytes of a page of the machine.
    #[must_use]
    pub fn page_bytes(&self) -> f64 {
        self.campaign.machine.page_bytes() as f64
    }

    /// The median of a figure.
    ///
    /// # Errors
    /// When no run has it.
    pub fn median(&self, pick: Pick) -> Result<f64, String> {
        self.median_of(self.cell, self.contender, pick).ok_or_else(|| "no run has figures".into())
    }

    /// The median of a mark.
    ///
    /// # Errors
    /// When no run reported it.
    pub fn mark(&self, name: &str) -> Result<f64, String> {
        self.median(&|run| run.mark(name))
    }

    /// The median of a figure in bytes over the resident set at the start of the same run.
    ///
    /// # Errors
    /// When no run has both.
    pub fn over_start(&self, cost: Cost) -> Result<f64, String> {
        self.median(&|run| Some(cost.of(run.figures)? - run.figures.start_rss_bytes? as f64))
    }

    /// The same of a mark in KiB; the result is in bytes.
    ///
    /// # Errors
    /// When no run has both.
    pub fn mark_over_start(&self, name: &str) -> Result<f64, String> {
        self.median(&|run| Some(run.mark(name)? * 1024.0 - run.figures.start_rss_bytes? as f64))
    }

    /// Minor faults of the measured part, above those of the empty program with as many threads.
    ///
    /// # Errors
    /// When this or the empty program has no run with figures.
    pub fn faults(&self) -> Result<f64, String> {
        let own = self.mark("faults")?;
        let is_empty = |cell: &Cell| {
            cell.suite == Suite::Seeds && cell.workload == "empty" && cell.threads == self.cell().threads
        };
        let empty = self.campaign.cells.iter().position(is_empty);
        let base = empty.and_then(|cell| self.median_of(cell, self.contender, &|run| run.mark("faults")));
        let base = base.ok_or("the program `empty` has no figures with as many threads")?;
        Ok((own - base).max(0.0))
    }

    /// The ratio to the smallest median of the contenders that are not the same library, from runs of one round.
    ///
    /// # Errors
    /// When there is nobody to compare with.
    pub fn ratio_to_best(&self, pick: Pick) -> Result<Ratio, String> {
        let own = self.contender();
        let others = (0..self.campaign.contenders.len())
            .filter(|other| *other != self.contender && !is_same(&self.campaign.contenders[*other], own));
        let medians = others.filter_map(|other| Some((other, self.median_of(self.cell, other, pick)?)));
        let best = medians
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .ok_or("there is no other allocator to compare with")?;
        let of = |contender: usize| -> Vec<(u32, f64)> {
            let runs = self.runs(self.cell, contender);
            runs.filter_map(|run| Some((run.sample.round, pick(run)?))).collect()
        };
        let theirs = of(best.0);
        let ratios = of(self.contender).into_iter().filter_map(|(round, figure)| {
            let (_, base) = theirs.iter().find(|(known, base)| *known == round && *base > 0.0)?;
            Some(figure / base)
        });
        Ratio::of(ratios.collect()).ok_or_else(|| "no round has figures of both".into())
    }

    /// The median of the C library's own allocator without settings.
    ///
    /// # Errors
    /// When it does not take part or has no figures.
    pub fn of_libc(&self, pick: Pick) -> Result<f64, String> {
        self.of_contender(&|other| other.library.is_none() && other.settings.is_empty(), pick)
            .ok_or_else(|| "libc is not among the contenders that have figures".into())
    }

    /// The median of jemalloc with its background thread.
    ///
    /// # Errors
    /// When it does not take part or has no figures.
    pub fn of_purging_jemalloc(&self, pick: Pick) -> Result<f64, String> {
        let purges = |other: &Contender| {
            other.settings.iter().any(|setting| setting.contains("background_thread:true"))
        };
        self.of_contender(&purges, pick).ok_or_else(|| {
            "needs jemalloc with its background thread: jemalloc-bg=MALLOC_CONF=background_thread:true PATH".into()
        })
    }

    /// The median of the first contender that fits, in the same cell.
    #[must_use]
    pub fn of_contender(&self, fits: &dyn Fn(&Contender) -> bool, pick: Pick) -> Option<f64> {
        let found = self.campaign.contenders.iter().position(fits)?;
        self.median_of(self.cell, found, pick)
    }

    fn runs(&self, cell: usize, contender: usize) -> impl Iterator<Item = Run<'a>> {
        let of = move |sample: &&Sample| sample.cell == cell && sample.contender == contender;
        let samples = self.campaign.samples.iter().filter(of);
        samples.filter_map(|sample| Some(Run { sample, figures: sample.figures.as_ref()? }))
    }

    fn median_of(&self, cell: usize, contender: usize, pick: Pick) -> Option<f64> {
        Spread::of(self.runs(cell, contender).filter_map(pick)).map(|spread| spread.median)
    }
}

/// Whether two contenders are one library under two names or settings.
fn is_same(one: &Contender, other: &Contender) -> bool {
    one.library == other.library
}
