//! `cargo xtask map-matrix`: how much of real programs' memory `faultless map` cannot name, under each allocator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, usage, wrong};
use crate::library::{Profile, build};
use crate::workspace::{output, target};

/// A program: how its files are made in an empty folder, and what is run there. Both are lines for `sh`; the second becomes the
/// program by `exec`.
struct Program {
    name: &'static str,
    prepare: &'static str,
    run: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "JVM 17, 300 threads",
        prepare: JAVA,
        run: "exec $(ls -d /usr/lib/jvm/*17*/bin/java | head -1) -cp . Many",
    },
    Program {
        name: "JVM 25, 300 threads",
        prepare: JAVA,
        run: "exec $(ls -d /usr/lib/jvm/*25*/bin/java | head -1) -cp . Many",
    },
    Program {
        name: "PostgreSQL, one backend",
        prepare: "P=$(ls -d /usr/lib/postgresql/*/bin | head -1); chown postgres . && \
                  setpriv --reuid postgres --regid postgres --clear-groups $P/initdb -D data -A trust --locale C >/dev/null",
        run: "P=$(ls -d /usr/lib/postgresql/*/bin | head -1); mkfifo hold 2>/dev/null; \
              (echo 'create temp table t as select g, md5(g::text) m from generate_series(1, 300000) g order by 2;'; sleep 100) >hold & \
              exec setpriv --reuid postgres --regid postgres --clear-groups $P/postgres --single -D data postgres <hold",
    },
    Program {
        name: "CPython with NumPy",
        prepare: "/usr/bin/python3 -c 'import numpy'",
        run: "exec /usr/bin/python3 -c '
import time, numpy as n
kept = [{\"a\": i, \"b\": str(i)} for i in range(300000)]
m = n.random.rand(1500, 1500); p = m @ m; k = [n.zeros(1000) + 1 for _ in range(10000)]
time.sleep(1000)'",
    },
    Program {
        name: "Node",
        prepare: "node --version >/dev/null",
        run: "exec node -e 'const k=[]; for (let i=0;i<300000;i++) k.push({a:i,b:\"x\"+i,c:[i]}); \
              const b=[]; for (let i=0;i<50;i++) b.push(Buffer.alloc(1<<20,1)); setInterval(()=>{},1000)'",
    },
    Program {
        name: "PHP",
        prepare: "php --version >/dev/null",
        run: "exec php -r '$a=[]; for($i=0;$i<600000;$i++) $a[]=\"x\".$i; $s=str_repeat(\"y\",30000000); sleep(1000);'",
    },
    Program {
        name: "Ruby",
        prepare: "ruby --version >/dev/null",
        run: "exec ruby -e 'a=(1..1_000_000).map { |i| \"x#{i}\" }; sleep 1000'",
    },
    Program { name: "Go", prepare: GO, run: "exec ./program" },
    Program {
        name: "Redis",
        prepare: "redis-server --version >/dev/null",
        run: "exec redis-server --port 0 --unixsocket ./socket --save '' --daemonize no",
    },
];

const JAVA: &str = r#"cat > Many.java <<'END'
import java.util.*;
public class Many {
    static final List<byte[]> kept = new ArrayList<>();
    public static void main(String[] a) throws Exception {
        for (int i = 0; i < 300; i++) new Thread(() -> {
            byte[] b = new byte[20000];
            synchronized (kept) { kept.add(b); }
            java.nio.ByteBuffer.allocateDirect(10000);
            java.util.zip.Deflater z = new java.util.zip.Deflater();
            z.setInput(b); z.deflate(new byte[1000]);
            try { Thread.sleep(1000000); } catch (InterruptedException e) { }
        }, "worker-" + i).start();
        for (int i = 0; i < 200; i++) kept.add(new byte[1000000]);
    }
}
END
$(ls -d /usr/lib/jvm/*17*/bin/javac | head -1) Many.java"#;

const GO: &str = r#"cat > program.go <<'END'
package main
import ("fmt"; "time")
var kept [][]byte
var names = map[int]string{}
func main() {
    for i := 0; i < 100; i++ { b := make([]byte, 1<<20); for j := range b { b[j] = 1 }; kept = append(kept, b) }
    for i := 0; i < 1000000; i++ { names[i] = fmt.Sprint(i) }
    for i := 0; i < 100; i++ { go time.Sleep(time.Hour) }
    time.Sleep(time.Hour)
}
END
GOCACHE=$PWD/cache GOFLAGS=-mod=mod go build -o program program.go"#;

/// Allocators as Debian installs them; libc and Faultless are always there.
const LIBRARIES: &[(&str, &str)] = &[
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
    ("mimalloc", "libmimalloc.so.2"),
];

/// Where Debian puts libraries.
const FOLDERS: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Runs all programs under all allocators and prints the table for docs/map.md.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let tool = arguments.option("--tool")?.map(PathBuf::from);
    let preload = arguments.option("--preload")?.map(PathBuf::from);
    let programs = chosen(&arguments.words()?)?;
    let tool = match tool {
        Some(tool) => tool.canonicalize().at(&tool)?,
        None => newest_tool()?,
    };
    let folder = target()?.join("map-matrix");
    let library = match preload {
        Some(path) => path.canonicalize().at(&path)?,
        None => build(Profile::Dist)?,
    };
    let columns = columns(&library);
    let heads: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    println!("| unknown, % of RSS | {} |\n|---|{}", heads.join(" | "), "---:|".repeat(heads.len()));
    for program in programs {
        let place = folder.join(program.name.replace([' ', ','], "-"));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).at(&place)?;
        if !shell(program.prepare, &place).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: {} (not installed, or not to be prepared as this user)", program.name);
            continue;
        }
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, library)| {
                unknown(program, &place, library, &tool).unwrap_or_else(|failure| format!("({failure})"))
            })
            .collect();
        println!("| {} | {} |", program.name, cells.join(" | "));
    }
    Ok(())
}

/// The programs whose names contain one of these, in the order of the table; all where none is given.
fn chosen(names: &[String]) -> Result<Vec<&'static Program>> {
    let fits = |program: &Program, name: &String| program.name.to_lowercase().contains(&name.to_lowercase());
    if let Some(unknown) = names.iter().find(|name| !PROGRAMS.iter().any(|program| fits(program, name))) {
        let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return usage(format!("no program is called {unknown:?}; there are {}", known.join("; ")));
    }
    let is_chosen = |program: &&Program| names.is_empty() || names.iter().any(|name| fits(program, name));
    Ok(PROGRAMS.iter().filter(is_chosen).collect())
}

fn newest_tool() -> Result<PathBuf> {
    let found = ["release", "debug"]
        .iter()
        .filter_map(|profile| Some(target().ok()?.join(profile).join("faultless")));
    found
        .filter(|path| path.is_file())
        .max_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
        .ok_or_else(|| Failure::Missing("faultless is not built: cargo build --release".into()))
}

fn columns(faultless: &Path) -> Vec<(String, String)> {
    let mut columns = vec![("libc".to_owned(), String::new())];
    for (name, file) in LIBRARIES {
        match FOLDERS.iter().map(|folder| Path::new(folder).join(file)).find(|path| path.is_file()) {
            Some(path) => columns.push(((*name).to_owned(), path.display().to_string())),
            None => eprintln!("skipped: {name} is not installed ({file})"),
        }
    }
    columns.push(("Faultless".to_owned(), faultless.display().to_string()));
    columns
}

fn shell(line: &str, place: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(place)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::null());
    command
}

struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The unknown part with the resident size; runs the program until it grows no more.
fn unknown(program: &Program, place: &Path, library: &str, tool: &Path) -> Result<String> {
    let preload = if library.is_empty() { String::new() } else { format!("export LD_PRELOAD={library}; ") };
    let mut child = Guard(shell(&format!("{preload}{}", program.run), place).spawn().at(place)?);
    settle(&mut child.0)?;
    let pid = child.0.id().to_string();
    let map = output(Command::new(tool).args(["map", "--json", "--pid", &pid]))?;
    // The document is ours and flat enough: the two numbers are looked up by name rather than parsed by a crate.
    let number = |name: &str| -> Option<f64> {
        let rest = &map[map.find(&format!("\"{name}\":"))? + name.len() + 3..];
        rest.split([',', '\n']).next()?.trim().parse().ok()
    };
    match (number("unknown_share"), number("counted_rss_bytes")) {
        (Some(share), Some(bytes)) => Ok(format!("{:.2} of {:.0} MiB", share * 100.0, bytes / 1_048_576.0)),
        _ => wrong("no figures"),
    }
}

/// Waits until the resident size has stayed the same for a while.
fn settle(child: &mut Child) -> Result<()> {
    let begun = Instant::now();
    let (mut last, mut same) = (0, 0);
    while begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(300));
        if let Ok(Some(status)) = child.try_wait() {
            return wrong(format!("ended: {status}"));
        }
        let statm = fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        same = if pages.abs_diff(last) < 64 { same + 1 } else { 0 };
        last = pages;
        if same >= 6 && begun.elapsed() > Duration::from_secs(4) {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_chosen_by_a_part_of_their_names_and_an_unknown_one_is_an_error() {
        let names = |words: &[&str]| -> Result<Vec<&str>> {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Ok(chosen(&words)?.into_iter().map(|program| program.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), PROGRAMS.len());
        assert_eq!(names(&["ruby", "node"]).unwrap(), ["Node", "Ruby"]);
        assert!(names(&["ruby", "pyhton"]).is_err_and(|failure| failure.to_string().contains("CPython")));
    }
}
