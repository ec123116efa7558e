//! git: the same history, made and repacked with and without the library, has the same hashes.

use std::fmt::Write;

use crate::failure::{Result, expect_equal, wrong};
use crate::sandbox::{Sandbox, tool};
use crate::sequence::Sequence;

const COMMITS: u64 = 1_500;
const FILES: u64 = 400;

/// Runs the check.
pub fn run(sandbox: &mut Sandbox) -> Result<()> {
    let git = tool("git", "git")?;
    let version = sandbox.job(&git).args(["--version"]).run()?.text();
    if version.is_empty() {
        return wrong("git --version printed nothing");
    }
    sandbox.write("history", history())?;
    let alone = Repository { sandbox, git: &git, name: "alone", preload: false }.story()?;
    let under = Repository { sandbox, git: &git, name: "under", preload: true }.story()?;
    expect_equal("what git says", &alone, &under)
}

struct Repository<'a> {
    sandbox: &'a Sandbox,
    git: &'a std::path::Path,
    name: &'a str,
    preload: bool,
}

impl Repository<'_> {
    /// Makes the repository, works in it, and returns all that git said about the result.
    fn story(&self) -> Result<String> {
        self.sandbox.make_folder(self.name)?;
        self.git(&["init", "--quiet", "--initial-branch=main", "."])?;
        self.git_with_input(&["fast-import", "--quiet"], "history")?;
        self.git(&["reset", "--quiet", "--hard", "main"])?;
        let mut story = self.git(&["merge", "--quiet", "--no-edit", "side"])?;
        self.git(&["repack", "-a", "-d", "-f", "--quiet", "--threads=4", "--depth=50", "--window=20"])?;
        self.git(&["gc", "--aggressive", "--quiet", "--prune=now"])?;
        self.git(&["clone", "--quiet", "--no-local", ".", "copy"])?;
        for words in [
            &["fsck", "--full", "--strict"] as &[&str],
            &["rev-parse", "HEAD", "HEAD^{tree}", "side"],
            &["log", "--stat", "--format=%H %T %an %s", "-M"],
            &["rev-list", "--objects", "--all"],
            &["status", "--porcelain", "--untracked-files=no"],
            &["grep", "--threads=4", "-c", "abc"],
            &["blame", "--porcelain", "f0"],
            &["-C", "copy", "fsck", "--full"],
            &["-C", "copy", "rev-parse", "HEAD"],
        ] {
            let _ = writeln!(story, "git {}\n{}", words.join(" "), self.git(words)?);
        }
        Ok(story)
    }

    fn git(&self, words: &[&str]) -> Result<String> {
        self.git_with_input(words, "")
    }

    fn git_with_input(&self, words: &[&str], input: &str) -> Result<String> {
        let job = if self.preload { self.sandbox.job(self.git) } else { self.sandbox.plain_job(self.git) };
        let job = job.arg("-C").arg(self.sandbox.path(self.name)).args(words);
        let job =
            job.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_AUTHOR_DATE", DATE).env("GIT_COMMITTER_DATE", DATE);
        let job = ["AUTHOR", "COMMITTER"].iter().fold(job, |job, role| {
            job.env(&format!("GIT_{role}_NAME"), "A U Thor")
                .env(&format!("GIT_{role}_EMAIL"), "author@example.com")
        });
        // Those that last long enough to be seen.
        let lasting = words.iter().any(|word| ["fast-import", "repack", "gc"].contains(word));
        let job = if lasting { job.proven_in("git") } else { job };
        let job = if input.is_empty() { job } else { job.input_file(&self.sandbox.path(input))? };
        Ok(job.run()?.text())
    }
}

const DATE: &str = "1700000000 +0000";

/// A stream for `git fast-import`: a main line, and a side branch that touches other files.
fn history() -> String {
    let mut sequence = Sequence::new(3);
    let mut text = String::new();
    for commit in 0..COMMITS {
        let side = commit % 10 == 9;
        let branch = if side { "side" } else { "main" };
        let _ = write!(text, "commit refs/heads/{branch}\nmark :{}\n", commit + 1);
        let _ = writeln!(text, "committer A U Thor <author@example.com> {} +0000", 1_600_000_000 + commit);
        text += &data(&format!("change {commit}"));
        if side && commit == 9 {
            text += "from :9\n";
        }
        let changes = if commit == 0 { FILES } else { 6 };
        for change in 0..changes {
            let file = if commit == 0 { change } else { sequence.below(FILES) };
            // The branches never change the same file, so that the merge has one result.
            let file = if side {
                file | 1
            } else if commit == 0 {
                file
            } else {
                file & !1
            };
            let lines = 20 + sequence.below(200);
            let mut content = format!("file {file}\n");
            for line in 0..lines {
                let fresh = sequence.below(8) == 0;
                let word = if fresh { sequence.text(30) } else { format!("line {line} of {file}") };
                let _ = writeln!(content, "{word}");
            }
            let _ = write!(text, "M 644 inline f{file}\n{}", data(&content));
        }
    }
    text + "done\n"
}

fn data(content: &str) -> String {
    format!("data {}\n{content}\n", content.len())
}
