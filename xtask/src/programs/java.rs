//! The Java compiler and a Java program of many threads.

use std::fmt::Write;

use crate::failure::{Result, expect_equal};
use crate::programs::source;
use crate::sandbox::{Sandbox, tool};

const CLASSES: u64 = 600;

/// javac over generated classes; the result is run and must compute what this program computes.
pub fn compile(sandbox: &mut Sandbox) -> Result<()> {
    let (javac, java) = (tool("javac", "default-jdk-headless")?, tool("java", "default-jdk-headless")?);
    let mut files = String::new();
    for class in 0..CLASSES {
        sandbox.write(&format!("source/C{class}.java"), class_text(class))?;
        let _ = writeln!(files, "source/C{class}.java");
    }
    sandbox.write("source/Main.java", main_text())?;
    sandbox.write("files", files + "source/Main.java\n")?;
    let job = sandbox.job(javac).args(["-d", "classes", "-proc:none", "-Xlint:all", "@files"]);
    job.proven_in("javac").run()?;
    let done = sandbox.job(java).args(["-cp", "classes", "Main"]).proven_in("java").run()?;
    let sum: u64 = (0..CLASSES).map(|class| (0..20).map(|n| (n + 1) * (n + class)).sum::<u64>()).sum();
    expect_equal("sum of the generated classes", &format!("{sum}\n"), &done.text())
}

/// 200 threads, each with compressed streams and direct buffers whose CRCs it checks.
pub fn threads(sandbox: &mut Sandbox) -> Result<()> {
    let java = tool("java", "default-jdk-headless")?;
    let library = sandbox.library().file_name().unwrap_or_default().to_owned();
    let job = sandbox.job(java).arg("-Xmx512m").arg(source("Streams.java")).args(["200", "12"]).arg(library);
    let done = job.proven_in("java").run()?;
    expect_equal("streams", "200 threads, 2400 rounds, all checksums right\n", &done.text())
}

fn class_text(class: u64) -> String {
    let mut text = format!("import java.util.*;\nimport java.util.function.*;\n\npublic class C{class} {{\n");
    for method in 0..20 {
        let _ = write!(
            text,
            "    record R{method}<T extends Comparable<T>>(T left, List<? extends T> right) {{}}\n    \
             static <T extends Comparable<T>> long m{method}(long n, Map<String, List<T>> map) {{\n        \
             Function<Long, Function<Long, Long>> f = a -> b -> a * b;\n        \
             var r = new R{method}<>(\"x\" + n, new ArrayList<>(List.of(\"{method}\", \"y\")));\n        \
             return switch (r.right().size()) {{ case 2 -> f.apply(n + 1).apply(n + {class}L); default -> -1; }};\n    \
             }}\n"
        );
    }
    text += "    public static long sum() {\n        long sum = 0;\n";
    for method in 0..20 {
        let _ = writeln!(text, "        sum += m{method}({method}L, new HashMap<String, List<Integer>>());");
    }
    text + "        return sum;\n    }\n}\n"
}

fn main_text() -> String {
    let mut text =
        "public class Main {\n    public static void main(String[] words) {\n        long sum = 0;\n"
            .to_owned();
    for class in 0..CLASSES {
        let _ = writeln!(text, "        sum += C{class}.sum();");
    }
    text + "        System.out.println(sum);\n    }\n}\n"
}
