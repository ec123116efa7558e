//! Structure of the page, from small campaigns.

use faultless_diagnosis::standing::Ratio;
use faultless_records::bench::{Campaign, Cell, Contender, Figures, Machine, SCHEMA, Sample, Size, Suite};

use super::{html, plot, strip};
use crate::scene::{Ink, Shape};

fn cell(suite: Suite, workload: &str, threads: Option<u32>) -> Cell {
    Cell { suite, workload: workload.into(), size: threads.map(|_| Size::Small), threads, variant: None }
}

/// Two programs of the article with three thread counts and one real program, under three contenders, in three rounds.
fn campaign() -> Campaign {
    let mut cells = Vec::new();
    for workload in ["threadtest", "mtmalloctest"] {
        cells.extend([1, 2, 8].map(|threads| cell(Suite::Sun, workload, Some(threads))));
    }
    cells.push(cell(Suite::Programs, "lua", None));
    let names = ["libc", "jemalloc", "mimalloc 3"];
    let contender = |name: &str| Contender {
        settings: Vec::new(),
        name: name.into(),
        library: (name != "libc").then(|| format!("lib{name}.so")),
    };
    let mut samples = Vec::new();
    for round in 0..3 {
        for cell in 0..cells.len() {
            for contender in 0..names.len() {
                let slower = 1.0 + contender as f64 * 0.3 + f64::from(round) * 0.01;
                let bytes = (1 << 20) * (cell as u64 + 2 * contender as u64 + 1);
                let figures = Figures {
                    elapsed_s: slower,
                    user_s: slower,
                    minor_faults: 1000 + 100 * contender as u64,
                    peak_rss_bytes: bytes,
                    live_peak_bytes: Some(bytes / 2),
                    ..Figures::default()
                };
                let figures = Some(figures);
                samples.push(Sample {
                    cell,
                    contender,
                    round,
                    figures,
                    failure: None,
                    foreign_cpu: 0.0,
                    marks: Default::default(),
                });
            }
        }
    }
    Campaign {
        schema: SCHEMA,
        tool_version: "0.1.0".into(),
        started_unix_s: 951_782_400,
        machine: Machine {
            processor: "Model <T>".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
            kernel: "6.1".into(),
            libc: "glibc 2.36".into(),
            huge_pages: "madvise".into(),
            page_bytes: 4096,
        },
        contenders: names.map(contender).into(),
        reference: 0,
        command: Vec::new(),
        seed: None,
        cells,
        samples,
        system_calls: Vec::new(),
    }
}

/// Every number in a coordinate is finite, and no picture has words where numbers belong.
fn is_sound(page: &str) {
    for word in ["NaN", "inf\"", "inf ", "=\"inf", "-inf"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
    assert_eq!(page.matches("<g ").count(), page.matches("</g>").count());
    for attribute in ["x", "y", "x1", "cx", "cy", "r", "width", "height"] {
        let opening = format!(" {attribute}=\"");
        for part in page.split(&opening).skip(1) {
            let number = part.split('"').next().unwrap();
            assert!(number.parse::<f64>().is_ok_and(f64::is_finite), "{attribute}={number}");
        }
    }
    for outline in page.split(" d=\"").skip(1).map(|part| part.split('"').next().unwrap()) {
        let numbers =
            outline.split(|c: char| c.is_ascii_alphabetic() || c == ' ').filter(|text| !text.is_empty());
        for number in numbers {
            assert!(number.parse::<f64>().is_ok_and(f64::is_finite), "{outline}");
        }
    }
}

/// The page, and the picture if there is something to draw, are sound, and the picture's shapes lie in it.
fn are_sound(campaign: &Campaign) {
    is_sound(&html(campaign));
    let Some(scene) = plot::scene(campaign) else { return };
    is_sound(&scene.svg());
    assert!(scene.holds_its_shapes(), "{:?}", scene.shapes);
}

#[test]
fn of_a_single_round_no_confidence_is_shown() {
    let mut campaign = campaign();
    campaign.samples.retain(|sample| sample.round == 0);
    let page = html(&campaign);
    assert!(page.contains("one round: no interval") && !page.contains("0 % confidence"));
    assert!(page.contains("×1.30</span> <small></small>"), "nor the ratio once more in its place");
}

#[test]
fn the_picture_has_a_point_for_each_contender_in_each_suite() {
    let campaign = campaign();
    are_sound(&campaign);
    let scene = plot::scene(&campaign).unwrap();
    let points = scene.shapes.iter().filter(|shape| matches!(shape, Shape::Disc { .. }));
    assert_eq!(points.count(), 2 * 3);
    let svg = scene.svg();
    for text in ["sun", "programs", "over 6 cells, ratios to libc", "mimalloc 3<", "×1.5", "wall time"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    let places = |is_it: fn(&Shape) -> bool| -> Vec<usize> {
        scene.shapes.iter().enumerate().filter(|(_, shape)| is_it(shape)).map(|(place, _)| place).collect()
    };
    let whiskers = places(|shape| matches!(shape, Shape::Path { ink: Ink::Series(_), .. }));
    let names = places(|shape| matches!(shape, Shape::Text { ink: Ink::Series(_), .. }));
    assert_eq!(
        (whiskers.len(), names.len()),
        (2 * 2 * 3 + 3, 2 * 3 + 3),
        "those of the curves by threads, too"
    );
    assert!(whiskers[5] < names[0] && names[2] < whiskers[6], "no line lies upon a name");
    // Libc is where both ratios are 1, and what takes more of both lies above it and to its right.
    let centres: Vec<(f64, f64)> = scene
        .shapes
        .iter()
        .filter_map(|shape| match shape {
            Shape::Disc { centre, .. } => Some(*centre),
            _ => None,
        })
        .collect();
    assert!(centres[0].0 < centres[1].0 && centres[0].1 > centres[1].1, "{centres:?}");
    assert!(centres[1].0 < centres[2].0 && centres[1].1 > centres[2].1, "{centres:?}");
}

#[test]
fn figures_of_an_axis_have_room_above_as_below() {
    let ratio = |median| Ratio { median, low: median, high: median, confidence: 0.0 };
    let ratios = vec![(0, ratio(0.45), String::new()), (1, ratio(1.7), String::new())];
    let row = strip::Row { name: "a name of so many letters".into(), ratios };
    let chart = strip::figure("", "", &[row]);
    let figures: Vec<&str> =
        chart.split("class=\"tick\"").skip(1).map(|tick| tick.split(['>', '<']).nth(1).unwrap()).collect();
    let (below, above) = figures.split_at(figures.len() / 2);
    assert_eq!(below, above);
    assert!(below.contains(&"×0.5") && below.contains(&"×1") && !below.contains(&"×0.9"), "{below:?}");
}

#[test]
fn a_suite_with_three_numbers_of_threads_has_curves_of_time_by_threads() {
    let mut campaign = campaign();
    let eight = |cell: &Cell| cell.threads == Some(8);
    let cells = campaign.cells.clone();
    for sample in campaign.samples.iter_mut().filter(|sample| eight(&cells[sample.cell])) {
        if let Some(figures) = sample.figures.as_mut() {
            figures.elapsed_s /= 4.0;
        }
    }
    are_sound(&campaign);
    let curves_of = |campaign: &Campaign| {
        let shapes = plot::scene(campaign).unwrap().shapes;
        let curves = shapes.into_iter().filter_map(|shape| match shape {
            Shape::Path { points, ink: Ink::Series(_), .. } if points.len() == 3 => Some(points),
            _ => None,
        });
        curves.collect::<Vec<_>>()
    };
    let curves = curves_of(&campaign);
    assert_eq!(curves.len(), 3);
    for points in &curves {
        let [one, two, eight] = points[..] else { panic!("{points:?}") };
        assert!(one.0 < two.0 && two.0 < eight.0, "{points:?}");
        assert!((one.1 - two.1).abs() < 0.1 && eight.1 > two.1 + 50.0, "a quarter of the time: {points:?}");
    }
    let svg = plot::scene(&campaign).unwrap().svg();
    assert!(svg.contains("over 2 workloads, ratios to libc with 1 thread<"), "{svg}");
    let failed = |sample: &&mut Sample| sample.contender == 2 && sample.cell == 1;
    campaign.samples.iter_mut().filter(failed).for_each(|sample| sample.figures = None);
    assert_eq!(curves_of(&campaign).len(), 2, "one of them has no time with two threads");
    campaign.cells[1].threads = Some(3);
    assert_eq!(curves_of(&campaign).len(), 0, "two numbers of threads that both workloads ran with");
}

#[test]
fn the_picture_says_who_is_not_in_it_and_its_letters_are_in_every_font() {
    let mut campaign = campaign();
    assert!(!plot::scene(&campaign).unwrap().svg().contains("without a mean"));
    for contender in [1, 2] {
        campaign.contenders[contender].name = format!("mimalloc-{contender}-with-a-long-name");
    }
    let failed = |sample: &&mut Sample| sample.contender == 2 && sample.cell == 0;
    campaign.samples.iter_mut().filter(failed).for_each(|sample| sample.figures = None);
    are_sound(&campaign);
    let svg = plot::scene(&campaign).unwrap().svg();
    for text in ["without a mean: mimalloc-2-with-a-l...<", ">mimalloc-1-with-a-l...<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(svg.chars().all(|letter| u32::from(letter) < 256), "{svg}");
}

#[test]
fn a_line_leads_to_a_name_that_stands_far_from_its_point() {
    let faint_lines = |campaign: &Campaign| {
        let shapes = plot::scene(campaign).unwrap().shapes;
        shapes.iter().filter(|shape| matches!(shape, Shape::Path { ink: Ink::Faint, .. })).count()
    };
    let mut crowd = campaign();
    let arrows = faint_lines(&crowd);
    for copy in 0..20 {
        crowd.contenders.push(Contender { name: format!("copy {copy}"), ..crowd.contenders[1].clone() });
        let of_one = |sample: &&Sample| sample.contender == 1;
        let same: Vec<Sample> = crowd.samples.iter().filter(of_one).cloned().collect();
        crowd.samples.extend(same.into_iter().map(|sample| Sample { contender: 3 + copy, ..sample }));
    }
    are_sound(&crowd);
    assert!(faint_lines(&crowd) >= arrows + 2 * 8, "{} lines", faint_lines(&crowd));
}

#[test]
fn a_campaign_without_means_has_no_picture() {
    assert!(plot::scene(&Campaign { samples: Vec::new(), ..campaign() }).is_none());
}

#[test]
fn the_page_names_every_contender_and_the_articles_figures_come_first() {
    let page = html(&campaign());
    is_sound(&page);
    for text in [
        "libc",
        "jemalloc",
        "libmimalloc 3.so",
        "2000-02-29 00:00 UTC",
        "Model &lt;T&gt;",
        "8.0 GiB",
        "glibc 2.36",
        "as figure 4 of the article",
        "jemalloc, 8 threads: 1.31 s (1.30–1.32), ×1.30 of libc",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let headings = ["ThreadTest: time", "mtmalloctest: time", "ThreadTest: memory", "mtmalloctest: memory"];
    let places = headings.map(|heading| page.find(&format!("<b>{heading}</b>")).unwrap());
    assert!(places.is_sorted());
    assert_eq!(page.matches("class=\"chart\"").count(), 4 + 2 + 2, "lines, two scatters, one pair of rows");
    assert!(!page.contains("<aside"), "nothing to warn of");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = html(&campaign());
    for word in ["http:", "https:", "<script", "url(", "@import", "<img", "<link"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn texts_of_others_stay_texts() {
    let mut campaign = campaign();
    let bad = "\"><script>alert(1)</script>\n";
    campaign.tool_version = bad.into();
    campaign.machine.processor = bad.into();
    campaign.machine.kernel = bad.into();
    campaign.machine.libc = bad.into();
    campaign.machine.huge_pages = bad.into();
    for contender in &mut campaign.contenders {
        *contender = Contender { name: bad.into(), library: Some(bad.into()), settings: Vec::new() };
    }
    for cell in &mut campaign.cells {
        cell.workload = bad.into();
    }
    campaign.samples[3].figures = None;
    campaign.samples[3].failure = Some(bad.into());
    let page = html(&campaign);
    assert!(!page.contains("<script") && !page.contains("\">alert"));
    assert!(page.contains("&quot;&gt;&lt;script&gt;alert(1)"));
    is_sound(&page);
}

#[test]
fn what_stays_resident_is_shown_of_threads_that_sleep() {
    let mut sleeping = campaign();
    sleeping.cells = vec![cell(Suite::Threads, "parked", Some(500))];
    sleeping.samples.retain(|sample| sample.cell == 0);
    assert!(!html(&sleeping).contains("RSS after"));
    for sample in &mut sleeping.samples {
        let figures = sample.figures.as_mut().unwrap();
        (figures.end_rss_bytes, figures.idle_rss_bytes) = (Some(3 << 20), Some(77 << 20));
    }
    let page = html(&sleeping);
    is_sound(&page);
    assert!(page.contains(">RSS at the end</th>") && page.contains(">RSS after idle time</th>"));
    assert!(page.contains(">RSS after the idle time, MiB</th>") && page.contains("77.0"));
}

#[test]
fn settings_of_a_contender_stand_beside_its_library() {
    let mut two = campaign();
    two.contenders[2].settings = vec!["MIMALLOC_ALLOW_THP=0".into(), "A=<b>".into()];
    let page = html(&two);
    assert!(page.contains(
        "<code>libmimalloc 3.so</code> <code>MIMALLOC_ALLOW_THP=0</code> <code>A=&lt;b&gt;</code>"
    ));
}

#[test]
fn failures_and_a_busy_machine_are_said() {
    let mut campaign = campaign();
    for sample in campaign.samples.iter_mut().filter(|sample| sample.contender == 2) {
        sample.figures = None;
        sample.failure = Some("ended by signal 11".into());
        sample.foreign_cpu = 0.4;
    }
    let page = html(&campaign);
    is_sound(&page);
    assert!(page.contains("21 of 63 runs failed"));
    assert!(page.contains("<b>mimalloc 3</b>, ThreadTest, small, 1 thread: ended by signal 11 (3 times)"));
    assert!(page.contains("<b>At times the machine was busy with something else.</b>"));
    assert!(page.contains("0 % of all CPU time in the median run and 40.0 % in the worst"));
    assert!(page.contains("no figures in 6 cells"));
    campaign.samples.iter_mut().for_each(|sample| sample.foreign_cpu = 0.06);
    assert!(html(&campaign).contains("<b>The machine was busy with something else.</b>"));
}

#[test]
fn odd_campaigns_have_pages_too() {
    let empty = Campaign { contenders: Vec::new(), cells: Vec::new(), samples: Vec::new(), ..campaign() };
    are_sound(&empty);
    let page = html(&empty);
    assert!(page.contains("holds no samples") && !page.contains("<h2>"));

    let unknown = Campaign { machine: Machine { cpus: 1, ..Machine::default() }, ..campaign() };
    assert!(!html(&unknown).contains("<dd></dd>"));

    let no_runs = Campaign { samples: Vec::new(), ..campaign() };
    are_sound(&no_runs);

    let mut lost = campaign();
    lost.reference = 7;
    lost.samples[0].cell = 99;
    lost.samples[1].contender = 99;
    lost.started_unix_s = u64::MAX;
    are_sound(&lost);
    assert!(html(&lost).contains("Not sound."));

    let mut zeros = campaign();
    for sample in &mut zeros.samples {
        sample.figures = Some(Figures { live_peak_bytes: Some(0), ..Figures::default() });
    }
    are_sound(&zeros);

    let mut wild = campaign();
    for (sample, elapsed_s) in
        wild.samples.iter_mut().zip([f64::NAN, f64::INFINITY, -1.0, 1e300, 1e-300].repeat(9))
    {
        let figures = Figures {
            elapsed_s,
            user_s: elapsed_s,
            peak_rss_bytes: u64::MAX,
            minor_faults: u64::MAX,
            ..Figures::default()
        };
        sample.figures = Some(figures);
        sample.foreign_cpu = elapsed_s;
    }
    are_sound(&wild);
}

#[test]
fn one_thread_count_has_rows_of_ratios_and_no_lines() {
    let mut campaign = campaign();
    campaign.samples.retain(|sample| [0, 3].contains(&sample.cell));
    for sample in &mut campaign.samples {
        sample.cell /= 3;
    }
    campaign.cells = vec![cell(Suite::Sun, "threadtest", Some(1)), cell(Suite::Sun, "mtmalloctest", Some(1))];
    let page = html(&campaign);
    is_sound(&page);
    assert!(!page.contains("ThreadTest: time") && page.contains("Wall time as ratio to libc"));
}

#[test]
fn forms_of_one_case_have_lines_of_their_own() {
    let mut campaign = campaign();
    let case = |variant: &str, threads| Cell {
        variant: Some(variant.into()),
        ..cell(Suite::Seeds, "churn", Some(threads))
    };
    campaign.cells = vec![case("<1M>", 1), case("<1M>", 2), case("8M", 1), case("8M", 2)];
    campaign.samples.retain(|sample| sample.cell < 4);
    let page = html(&campaign);
    is_sound(&page);
    assert!(page.contains("<b>churn &lt;1M&gt;: ") && page.contains("<b>churn 8M: "), "{page}");
}

#[test]
fn forms_of_one_case_have_rows_of_their_own() {
    let mut campaign = campaign();
    let case = |workload: &str, variant: &str, threads| Cell {
        variant: Some(variant.into()),
        ..cell(Suite::Seeds, workload, Some(threads))
    };
    campaign.cells =
        vec![case("churn", "<1M>", 1), case("churn", "8M", 1), case("parked_random", "random:127969", 300)];
    campaign.samples.retain(|sample| sample.cell < 3);
    let page = html(&campaign);
    is_sound(&page);
    for name in ["churn &lt;1M&gt; · 1T", "churn 8M · 1T", "parked_random random · 300T"] {
        assert_eq!(page.matches(&format!(">{name}</text>")).count(), 2, "{name}");
    }
}

#[test]
fn the_criteria_of_the_seeds_stand_first_with_their_limits() {
    let mut campaign = campaign();
    assert!(!html(&campaign).contains("What each case must show"));
    let case = |workload: &str, variant: &str| Cell {
        variant: Some(variant.into()),
        ..cell(Suite::Seeds, workload, Some(2))
    };
    campaign.seed = Some(1234);
    campaign.cells = vec![case("empty", "none"), case("churn", "random:<7>")];
    campaign.samples.retain(|sample| sample.cell < 2);
    for sample in &mut campaign.samples {
        sample.marks = [("faults".to_owned(), 10.0), ("due_pages".to_owned(), 100.0)].into();
    }
    let page = html(&campaign);
    is_sound(&page);
    assert!(page.contains("churn random:&lt;7&gt; small 2") && page.contains("seed 1234"));
    assert!(page.contains("title=\"limit 174\"") && page.contains("aria-label=\"reached\""));
    assert!(page.find("What each case must show") < page.find("<h2>Summary</h2>"));
}
