//! All that the page shows of a campaign, computed once.

use std::cmp::Ordering;

use faultless_diagnosis::spread::Spread;
use faultless_diagnosis::standing::{self, Cost, Ratio};
use faultless_records::bench::{Campaign, Cell, Sample, Suite};

use crate::html_page::escape;

use super::look;

/// How a figure stands among those of the other contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// The smallest.
    Best,
    /// Not distinguishable from the smallest.
    Shared,
    /// More than the smallest.
    Behind,
}

impl Rank {
    /// The mark that stands beside the figure, and its name for those who do not see it.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::Best => "<span class=\"mark\" role=\"img\" aria-label=\"best\" title=\"best\">★</span>",
            Self::Shared => {
                "<span class=\"mark\" role=\"img\" aria-label=\"not distinguishable from the best\" \
                 title=\"not distinguishable from the best\">☆</span>"
            }
            Self::Behind => "",
        }
    }

    /// The class of what holds the figure.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Shared => "shared",
            Self::Behind => "",
        }
    }
}

/// One figure of one contender in one cell.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Median and range; none where every run failed or lacks it.
    pub spread: Option<Spread>,
    /// Its ratio to the reference's.
    pub ratio: Option<Ratio>,
    /// How it stands.
    pub rank: Rank,
}

/// The figures of one contender in one cell.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The time that ranks the suite, in s.
    pub time: Figure,
    /// Peak RSS in bytes.
    pub peak_rss: Figure,
    /// RSS at the end of the work, in bytes.
    pub end_rss: Figure,
    /// RSS after the idle time, in bytes.
    pub idle_rss: Figure,
    /// Minor faults.
    pub minor_faults: Figure,
    /// Median of peak RSS over live bytes.
    pub memory_per_live: Option<f64>,
}

/// A geometric mean over a suite.
#[derive(Debug, Clone, Copy)]
pub struct Mean {
    /// Ratio to the reference.
    pub ratio: Option<Ratio>,
    /// How it stands.
    pub rank: Rank,
}

/// A campaign with what is computed from it.
pub struct Board<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
    /// For each cell the entries of all contenders.
    entries: Vec<Vec<Entry>>,
}

impl<'a> Board<'a> {
    /// Computes all figures.
    #[must_use]
    pub fn of(campaign: &'a Campaign) -> Self {
        let entries = campaign.cells.iter().enumerate().map(|(index, cell)| {
            let alone = alone(campaign, index, cell);
            (0..campaign.contenders.len()).map(|contender| entry(&alone, cell.suite, contender)).collect()
        });
        Self { campaign, entries: entries.collect() }
    }

    /// The figures of all contenders in a cell.
    #[must_use]
    pub fn entries(&self, cell: usize) -> &[Entry] {
        self.entries.get(cell).map_or(&[], Vec::as_slice)
    }

    /// The suites that have cells, in the order of the table.
    pub fn suites(&self) -> impl Iterator<Item = Suite> {
        Suite::ALL.into_iter().filter(|suite| standing::cells_of(self.campaign, *suite).next().is_some())
    }

    /// For each contender its geometric mean over a suite.
    #[must_use]
    pub fn means(&self, suite: Suite, cost: Cost) -> Vec<Mean> {
        let to = |contender, base| {
            standing::suite_ratio(self.campaign, suite, contender, base, cost).filter(is_drawable)
        };
        let contenders = 0..self.campaign.contenders.len();
        let ratios: Vec<Option<Ratio>> =
            contenders.map(|contender| to(contender, self.campaign.reference)).collect();
        let known = ratios.iter().enumerate().filter_map(|(index, ratio)| Some((index, (*ratio)?.median)));
        let best = known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index);
        let rank = |contender: usize| match best {
            Some(best) if best == contender => Rank::Best,
            Some(best) if to(contender, best).is_some_and(|ratio| ratio.verdict() != Ordering::Greater) => {
                Rank::Shared
            }
            _ => Rank::Behind,
        };
        ratios
            .iter()
            .enumerate()
            .map(|(contender, ratio)| Mean { ratio: *ratio, rank: self.judged(rank(contender)) })
            .collect()
    }

    /// Name of a contender.
    #[must_use]
    pub fn name(&self, contender: usize) -> &str {
        self.campaign.contenders.get(contender).map_or("?", |contender| contender.name.as_str())
    }

    /// The head of a contender's column: how it is told apart, and its name.
    #[must_use]
    pub fn column_head(&self, contender: usize) -> String {
        format!("{}<br>{}", look::sample(contender), escape(self.name(contender)))
    }

    /// Name of the contender that the others are compared with.
    #[must_use]
    pub fn reference(&self) -> &str {
        self.name(self.campaign.reference)
    }

    /// In how many cells of a suite a contender has no run that succeeded.
    #[must_use]
    pub fn cells_without(&self, suite: Suite, contender: usize) -> usize {
        let lacks = |cell: &usize| {
            self.entries(*cell).get(contender).is_none_or(|entry| entry.peak_rss.spread.is_none())
        };
        standing::cells_of(self.campaign, suite).filter(lacks).count()
    }

    /// A contest of one has no best.
    fn judged(&self, rank: Rank) -> Rank {
        if self.campaign.contenders.len() > 1 { rank } else { Rank::Behind }
    }
}

/// The runs of one cell: what looks them up need not walk those of all others.
fn alone(campaign: &Campaign, index: usize, cell: &Cell) -> Campaign {
    let samples = campaign.samples.iter().filter(|sample| sample.cell == index).cloned();
    Campaign {
        contenders: campaign.contenders.clone(),
        reference: campaign.reference,
        cells: vec![cell.clone()],
        samples: samples.map(|sample| Sample { cell: 0, ..sample }).collect(),
        ..Campaign::default()
    }
}

fn entry(alone: &Campaign, suite: Suite, contender: usize) -> Entry {
    let per_live = alone.runs(0, contender).filter_map(|(_, figures)| figures.memory_per_live());
    Entry {
        time: figure(alone, contender, Cost::time_of(suite)),
        peak_rss: figure(alone, contender, Cost::PeakRss),
        end_rss: figure(alone, contender, Cost::EndRss),
        idle_rss: figure(alone, contender, Cost::IdleRss),
        minor_faults: figure(alone, contender, Cost::MinorFaults),
        memory_per_live: Spread::of(per_live).map(|spread| spread.median),
    }
}

fn figure(alone: &Campaign, contender: usize, cost: Cost) -> Figure {
    let is_sound = |spread: &Spread| spread.minimum >= 0.0 && spread.maximum.is_finite();
    let spread = standing::spread(alone, 0, contender, cost).filter(is_sound);
    let ratio = standing::ratio(alone, 0, contender, alone.reference, cost).filter(is_drawable);
    let rank = if spread.is_none() || alone.contenders.len() < 2 {
        Rank::Behind
    } else if standing::best(alone, 0, cost) == Some(contender) {
        Rank::Best
    } else if standing::is_among_best(alone, 0, contender, cost) {
        Rank::Shared
    } else {
        Rank::Behind
    };
    Figure { spread, ratio, rank }
}

/// Whether a logarithmic axis has a place for it.
fn is_drawable(ratio: &Ratio) -> bool {
    ratio.low > 0.0 && ratio.high.is_finite()
}
