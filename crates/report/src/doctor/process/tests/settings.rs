//! What its environment does to malloc.

use super::*;

fn with(variables: &[(&str, &str)]) -> ProcessConsultation {
    let mut consultation = quiet(100, 2);
    let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    consultation.environment = owned.collect();
    consultation.heap.as_mut().unwrap().walks = trapped();
    consultation
}

fn said(consultation: &ProcessConsultation) -> Vec<(String, Option<String>)> {
    let findings = consultation.findings().into_iter();
    let of_settings = findings.filter(|finding| finding.concern == Concern::Settings);
    of_settings.map(|finding| (finding.sentence, finding.advice)).collect()
}

#[test]
fn what_its_environment_sets_is_named_and_what_has_no_effect_is_said_to_have_none() {
    assert_eq!(said(&with(&[("PYTHONMALLOC", "malloc"), ("LD_PRELOAD", "/lib/x.so")])), []);
    let steered = with(&[
        ("MALLOC_ARENA_MAX", "1"),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=65535"),
        ("MALLOC_TRIM_THRESHOLD", "64"),
    ]);
    let [(told, compared), (idle, None)] = &*said(&steered) else { panic!("{:?}", said(&steered)) };
    assert!(
        told.ends_with("sets MALLOC_ARENA_MAX=1 GLIBC_TUNABLES=glibc.malloc.tcache_count=65535"),
        "{told}"
    );
    assert!(compared.as_ref().unwrap().contains("glibc's defaults"), "{compared:?}");
    assert!(
        idle.contains("MALLOC_TRIM_THRESHOLD in its environment is no variable that glibc reads: no effect; the right name is"),
        "{idle}"
    );
    let unreached = ProcessConsultation { obstacle: Some("it is linked statically".into()), ..steered };
    assert_eq!(said(&unreached)[0].1, None);
    assert_eq!(said(&with(&[("GLIBC_TUNABLES", "glibc.rtld.nns=8")])), []);
    let mut without_glibc = with(&[("MALLOC_ARENA_MAX", "2")]);
    without_glibc.heap.as_mut().unwrap().walks.clear();
    assert_eq!(said(&without_glibc), []);
}

#[test]
fn settings_of_glibcs_malloc_are_idle_where_another_serves_the_process() {
    let mut consultation = with(&[("MALLOC_ARENA_MAX", "1")]);
    consultation.map.mappings.extend(
        mappings::parse(b"7e0000000000-7e0000100000 r-xp 00000000 08:01 9 /lib/libjemalloc.so.2\nRss: 8 kB\nVmFlags: rd\n").unwrap(),
    );
    let heap = consultation.heap.as_mut().unwrap();
    (heap.walks, heap.other) = (Vec::new(), Some(("jemalloc".into(), Regions::default())));
    let [(idle, None)] = &*said(&consultation) else { panic!("{:?}", said(&consultation)) };
    assert!(idle.starts_with("MALLOC_ARENA_MAX in its environment is read by glibc's malloc only"), "{idle}");
    consultation.map.has_own_malloc = true;
    assert_eq!(said(&consultation), []);
}
