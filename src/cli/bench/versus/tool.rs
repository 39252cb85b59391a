//! Parses the output of etcd's own load generator. Never guesses: missing figures are an error.

/// What it measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    /// Answers a second.
    pub(super) per_second: f64,
    /// Milliseconds that 99 of 100 answers took at most.
    pub(super) p99_ms: f64,
    /// Requests that failed.
    pub(super) failed: u64,
}

/// Reads its output.
pub(super) fn read(output: &str) -> Result<Report, String> {
    let after = |mark: &str| {
        let rest = output.split_once(mark)?.1.trim_start();
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let missing = |what: &str| format!("etcd's benchmark printed no {what}:\n{}", tail(output));
    let per_second = after("Requests/sec:").ok_or_else(|| missing("Requests/sec"))?;
    let p99 = after("99% in").ok_or_else(|| missing("99th percentile"))?;
    let failed = match output.split_once("Error distribution:") {
        None => 0,
        // Lines of "[times] text".
        Some((_, rest)) => rest
            .lines()
            .filter_map(|line| line.trim().strip_prefix('[')?.split_once(']'))
            .filter_map(|(times, _)| times.parse::<u64>().ok())
            .sum::<u64>()
            .max(1),
    };
    Ok(Report {
        per_second,
        p99_ms: p99 * 1000.0,
        failed,
    })
}

fn tail(output: &str) -> &str {
    let from = output.len().saturating_sub(2000);
    output.get(from..).unwrap_or(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
Summary:
  Total:\t0.2856 secs.
  Requests/sec:\t7003.7165

Latency distribution:
  10% in 0.0015 secs.
  99% in 0.0100 secs.
  99.9% in 0.0124 secs.
";

    #[test]
    fn rate_and_percentile_are_read() {
        let want = Report {
            per_second: 7003.7165,
            p99_ms: 10.0,
            failed: 0,
        };
        assert_eq!(read(OUTPUT), Ok(want));
    }

    #[test]
    fn failures_are_summed() {
        let output = format!("{OUTPUT}\nError distribution:\n  [3]\ta: b\n  [40]\tc [7] d\n");
        assert_eq!(read(&output).expect("whole").failed, 43);
    }

    #[test]
    fn an_output_that_is_cut_short_is_an_error() {
        let error = read("Requests/sec:\t7").expect_err("no percentile");
        assert!(error.contains("no 99th percentile"), "{error}");
        assert!(read("Error: context deadline exceeded").is_err());
    }
}
