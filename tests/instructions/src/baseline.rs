//! The committed counts: reads, writes and judges them. A count beyond five percent of them fails, in both directions: a
//! gain that nobody records would hide the next loss. Never compares counts of different builds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Parts of a thousand by which a count may differ.
const TOLERATED: u64 = 50;
/// The only profile whose counts are of use: it is optimised as the release is.
const PROFILE: &str = "instructions";

/// What to do about more instructions.
const LOSS: &str = "More: find where they are (valgrind --tool=callgrind target/instructions/quorate-instructions run CASE \
                    1000, callgrind_annotate), before and after the change. If they are worth it, the commit says why, \
                    and has the new baseline: make instructions WRITE=1";
/// What to do about less, and about another list of cases.
const OTHER: &str = "Less, or another list of cases: write the new baseline, or the next loss hides in it: make \
                     instructions WRITE=1";

/// What made the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    compiler: String,
    profile: String,
    machine: String,
}

impl Build {
    /// Of this program.
    pub(crate) fn this() -> Build {
        Build {
            compiler: env!("COMPILER").to_owned(),
            profile: env!("PROFILE_NAME").to_owned(),
            machine: std::env::consts::ARCH.to_owned(),
        }
    }
}

/// The counts by case.
///
/// # Errors
/// The file is missing or damaged, or its counts are of another build.
pub(crate) fn read(path: &Path, here: &Build) -> Result<BTreeMap<String, u64>, String> {
    let text = std::fs::read_to_string(path);
    parse(
        &text.map_err(|error| format!("{}: {error}", path.display()))?,
        here,
    )
}

fn parse(text: &str, here: &Build) -> Result<BTreeMap<String, u64>, String> {
    for (what, found) in [
        ("compiler", &here.compiler),
        ("profile", &here.profile),
        ("machine", &here.machine),
    ] {
        let mark = format!("# {what}: ");
        let wanted = text.lines().find_map(|line| line.strip_prefix(&mark));
        let wanted = wanted.ok_or_else(|| format!("the baseline has no line {mark:?}"))?;
        if wanted != found {
            return Err(format!(
                "the baseline is of the {what} {wanted:?}, this is {found:?}, whose counts cannot be compared: build with \
                 that one, or write a baseline at the last commit before the change, then compare"
            ));
        }
    }
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|row| {
        let (name, count) = row.rsplit_once(',').ok_or(row)?;
        let name = name.trim_matches('"').to_owned();
        Ok((name, count.parse::<u64>().map_err(|_| row)?))
    })
    .collect::<Result<_, &str>>()
    .map_err(|row| format!("the baseline has a row that is not CASE,COUNT: {row}"))
}

/// Whether counts of this build may become the baseline.
///
/// # Errors
/// The profile is another one.
pub(crate) fn may_write(here: &Build) -> Result<(), String> {
    if here.profile == PROFILE {
        return Ok(());
    }
    Err(format!(
        "only the profile {PROFILE:?} has a baseline, this is {:?}",
        here.profile
    ))
}

/// Writes the counts.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, here: &Build, found: &[(&str, u64)]) -> Result<(), String> {
    let text = render(here, found);
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn render(here: &Build, found: &[(&str, u64)]) -> String {
    let mut text =
        "# Instructions of one operation. Written by: make instructions WRITE=1\n".to_owned();
    // Writing to a string does not fail.
    let _ = writeln!(text, "# compiler: {}", here.compiler);
    let _ = writeln!(text, "# profile: {}", here.profile);
    let _ = writeln!(text, "# machine: {}", here.machine);
    text.push_str("case,instructions\n");
    for (name, count) in found {
        let _ = writeln!(text, "\"{name}\",{count}");
    }
    text
}

/// A line of the table.
pub(crate) fn line(name: &str, each: u64, was: Option<u64>) -> String {
    match was {
        None => format!("{name:<50} {each:>12}"),
        Some(was) => format!(
            "{name:<50} {each:>12}  baseline {was:>12}  {:+6.2} %",
            percent(each, was)
        ),
    }
}

fn percent(each: u64, was: u64) -> f64 {
    (each as f64 / was.max(1) as f64 - 1.0) * 100.0
}

/// Whether the counts are those of the baseline.
///
/// # Errors
/// Which are not, and what to do.
pub(crate) fn judge(known: &BTreeMap<String, u64>, found: &[(&str, u64)]) -> Result<(), String> {
    let mut wrong = Vec::new();
    let (mut loss, mut other) = (false, false);
    for (name, each) in found {
        let Some(was) = known.get(*name) else {
            wrong.push(format!("{name}: not in the baseline"));
            other = true;
            continue;
        };
        if each.abs_diff(*was) * 1000 > TOLERATED * was {
            wrong.push(format!("{name}: {:+.1} %", percent(*each, *was)));
            (loss, other) = (loss || each > was, other || each < was);
        }
    }
    let there = |name: &String| found.iter().any(|(found, _)| found == name);
    for name in known.keys().filter(|name| !there(name)) {
        wrong.push(format!("{name}: in the baseline, and no case any more"));
        other = true;
    }
    if loss {
        wrong.push(LOSS.to_owned());
    }
    if other {
        wrong.push(OTHER.to_owned());
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("beyond 5 %:\n  {}", wrong.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(compiler: &str) -> Build {
        Build {
            compiler: compiler.to_owned(),
            profile: PROFILE.to_owned(),
            machine: "x86_64".to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = render(&build("rustc 1"), &[("a, b", 1000), ("c", 7)]);
        let read = parse(&text, &build("rustc 1")).expect("whole");
        assert_eq!(
            read,
            [("a, b".to_owned(), 1000), ("c".to_owned(), 7)].into()
        );
    }

    #[test]
    fn another_build_is_refused() {
        let text = render(&build("rustc 1"), &[("a", 1000)]);
        let error = parse(&text, &build("rustc 2")).expect_err("another compiler");
        assert!(
            error.contains("\"rustc 1\"") && error.contains("\"rustc 2\""),
            "{error}"
        );
        let mut other = build("rustc 1");
        other.profile = "debug".to_owned();
        assert!(parse(&text, &other).is_err());
        assert!(may_write(&other).is_err() && may_write(&build("rustc 1")).is_ok());
        assert!(parse(&text.replace(",1000", ","), &build("rustc 1")).is_err());
    }

    #[test]
    fn more_and_less_than_five_percent_fail() {
        let known = BTreeMap::from([("a".to_owned(), 1000)]);
        for (count, fine) in [
            (949, false),
            (950, true),
            (1000, true),
            (1050, true),
            (1051, false),
        ] {
            assert_eq!(judge(&known, &[("a", count)]).is_ok(), fine, "{count}");
        }
        let words = |count| judge(&known, &[("a", count)]).expect_err("too far");
        assert!(words(1051).contains(LOSS) && !words(1051).contains(OTHER));
        assert!(words(949).contains(OTHER) && !words(949).contains(LOSS));
        assert!(judge(&known, &[]).is_err());
        assert!(judge(&known, &[("a", 1000), ("b", 1)]).is_err());
    }
}
