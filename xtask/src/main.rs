//! `cargo xtask TASK`: the longer suites and the release builds of Faultless.
#![forbid(unsafe_code)]

mod aarch64;
mod arguments;
mod baseline;
mod check;
mod dependent;
mod dist;
mod failure;
mod glibc_heaps;
mod install;
mod instructions;
mod job;
mod library;
mod locked;
mod map_matrix;
mod musl;
mod peers;
mod processes;
mod programs;
mod races;
mod regions;
mod regret;
mod sandbox;
mod sequence;
mod server;
mod stress;
mod workspace;

use std::process::ExitCode;

use arguments::Arguments;
use failure::Failure;

const USAGE: &str = "\
usage: cargo xtask TASK [OPTIONS]

  check                    rustfmt, clippy, rustdoc, cargo test; CI runs this, then instructions --check
  programs [NAME...]       real programs under the library, with checked results
      --list               name them and stop
      --preload PATH       another library (default: libfaultless.so, built with profile dist)
      --keep               leave the working folder behind
  stress                   random threads, sizes, operations and forks, in several ways: threads that are stopped, calls
                           that the kernel refuses, settings; with and without debug assertions
      --seconds N          for each of the two (default 600), shared by the ways
      --threads N          default 8
      --seed N             of the first way; the next has the next (default 1)
  instructions             instructions of malloc and free, counted by callgrind, beside glibc's
      --preload PATH       another library
      --check              a subset, against xtask/instructions.txt
  locked [WORKLOAD...]     locked instructions per operation of bench's programs, by callgrind
      --allocators N=P,..  others beside libc and ours, NAME=PATH
      --threads N          default 8
  aarch64                  programs of tests/c under the library for aarch64, by qemu-aarch64
  musl                     the tests of the heap in static programs of musl, and a program that depends on it
  races                    threads hand blocks to each other under ThreadSanitizer; needs a nightly toolchain
      --threads N          default 4
      --turns N            blocks for each thread (default 40,000)
      --seed N             default 1
  peers [NAME...]          other allocators as libraries for `faultless bench --allocators NAME=PATH`, in target/peers
      --out DIR            another folder
  regret TRACE...          what policies of purging cost on traces of FAULTLESS=trace:PREFIX (docs/decay.md)
  regions [PART...]        populating and searching big data with and without regions: populate, gallery
      --rounds N           default 3
      --quick              small sizes, to see that it works
      --out FILE           all runs as lines of JSON
  glibc-heaps FOLDER...    faultless heap against extracted libcs of other versions, each under its own loader
  map-matrix [NAME...]     how much of real programs' memory faultless map cannot name, under each allocator
      --tool PATH          another faultless than the newest in target
      --preload PATH       another library than libfaultless.so, built with profile dist
  dist                     the copyable static binary and the library, in target/dist-out
  install --prefix DIR     the library, header, pkg-config and CMake files for C and C++ programs
";

fn main() -> ExitCode {
    let mut arguments = Arguments::new(std::env::args().skip(1));
    let outcome = match arguments.word().as_deref() {
        Some("check") => check::run(arguments),
        Some("programs") => programs::run(arguments),
        Some("stress") => stress::run(arguments),
        Some("instructions") => instructions::run(arguments),
        Some("locked") => locked::run(arguments),
        Some("peers") => peers::run(arguments),
        Some("regret") => regret::run(arguments),
        Some("regions") => regions::run(arguments),
        Some("glibc-heaps") => glibc_heaps::run(arguments),
        Some("map-matrix") => map_matrix::run(arguments),
        Some("dist") => dist::run(arguments),
        Some("install") => install::run(arguments),
        Some("aarch64") => aarch64::run(arguments),
        Some("musl") => musl::run(arguments),
        Some("races") => races::run(arguments),
        Some("help") | None => {
            arguments.switch("--help");
            arguments.end().map(|()| print!("{USAGE}"))
        }
        Some(other) => failure::usage(format!("no task is called {other:?} (cargo xtask help)")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}
