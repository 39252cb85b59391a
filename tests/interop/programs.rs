//! Prepares the client programs: what their packages are is pinned by a lock file, and fetched once for each version
//! of it. Judges nothing; a missing toolchain is an error with a reason to skip the test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The words of a command line, or why there is none.
pub(crate) type Program = Result<Vec<String>, String>;

/// The program of the Go client, which `tests/interop/build.sh` builds beside etcd.
pub(crate) fn go(peers: &Path, name: &str) -> Program {
    let program = peers.join(name);
    if !program.is_file() {
        return Err(format!("no {name}: run tests/interop/build.sh"));
    }
    Ok(vec![text(&program)])
}

/// That of the Rust client etcd-client.
pub(crate) fn rust(name: &str) -> Program {
    there(&["bash"])?;
    // After `make interop` everything is built, and cargo has nothing to do.
    let mut build = Command::new("bash");
    let script = folder("rust/build.sh");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    run("cargo build", build.arg(script).env("CARGO", cargo));
    Ok(vec![text(&built("rust/debug").join(name))])
}

/// One with the Python clients.
pub(crate) fn python(name: &str) -> Program {
    there(&["python3"])?;
    let lock = folder("python").join("requirements.txt");
    let packages = prepared("python", &lock, |folder| {
        run(
            "python3 -m venv",
            Command::new("python3").args(["-m", "venv"]).arg(folder),
        );
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args([
            "install",
            "--quiet",
            "--require-hashes",
            "--only-binary=:all:",
            "-r",
        ]);
        run("pip install", pip.arg(&lock));
    });
    Ok(vec![
        text(&packages.join("bin/python")),
        text(&folder("python").join(name)),
    ])
}

/// One with the Node client etcd3.
pub(crate) fn node(name: &str) -> Program {
    there(&["node", "npm"])?;
    let source = folder("node");
    let packages = prepared("node", &source.join("package-lock.json"), |folder| {
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(source.join(file), folder.join(file)).expect("copied");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        run("npm ci", npm.current_dir(folder));
    });
    // Node searches packages next to the program.
    let program = packages.join(name);
    std::fs::copy(source.join(name), &program).expect("copied");
    Ok(vec!["node".to_owned(), text(&program)])
}

/// One with the Java client jetcd, which java compiles by itself.
pub(crate) fn java(name: &str) -> Program {
    there(&["java", "javac", "mvn"])?;
    let source = folder("java");
    let digests = source.join("jars.sha256");
    let packages = prepared("java", &digests, |folder| {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--file"]);
        maven.arg(source.join("pom.xml"));
        maven.arg("dependency:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", folder.display()));
        run("mvn dependency:copy-dependencies", &mut maven);
        // Of exactly these files: neither another one nor one more.
        let mut compare = Command::new("bash");
        compare.args(["-c", "sha256sum *.jar | diff \"$1\" -", "bash"]);
        compare.arg(&digests).current_dir(folder).env("LC_ALL", "C");
        run("jars.sha256", &mut compare);
    });
    Ok(vec![
        "java".to_owned(),
        // As much as a short story needs: most of its time is the start of the virtual machine.
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-cp".to_owned(),
        text(&packages.join("*")),
        text(&source.join(name)),
    ])
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(name)
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/interop")
        .join(name)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Whether all of these are installed and print their version.
fn there(programs: &[&str]) -> Result<(), String> {
    let lacks = |program: &&&str| {
        let mut command = Command::new(program);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        !command.status().is_ok_and(|status| status.success())
    };
    match programs.iter().find(lacks) {
        Some(program) => Err(format!("no {program}")),
        None => Ok(()),
    }
}

/// Runs one step of preparation; an error contains its output.
fn run(what: &str, command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let (out, err) = (&output.stdout, &output.stderr);
    let text = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].concat();
    assert!(output.status.success(), "{what} failed:\n{text}");
}

/// Prepares a folder of packages once for each version of a lock file, by one test at a time.
fn prepared(name: &str, lock: &Path, prepare: impl FnOnce(&Path)) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (folder, lock) = (built(name), std::fs::read(lock).expect("a lock file"));
    let stamp = folder.join("stamp");
    if std::fs::read(&stamp).is_ok_and(|old| old == lock) {
        return folder;
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    prepare(&folder);
    std::fs::write(stamp, lock).expect("a stamp");
    folder
}
