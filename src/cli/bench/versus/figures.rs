//! Figures of two alternating sides, as a table and as JSON. Compares only within a round, and never if a request
//! failed.

use std::fmt::Write as _;

use serde::Serialize;

/// Who was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This build.
    Ours,
    /// Real etcd.
    Etcd,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// Throughput.
    Higher,
    /// Time, memory.
    Lower,
    /// Neither: it says something of the measurement.
    Neither,
}

/// One kind of measurement over all rounds.
#[derive(Clone, Debug)]
struct Figure {
    name: String,
    unit: &'static str,
    better: Better,
    ours: Vec<f64>,
    etcd: Vec<f64>,
    failed: u64,
}

/// What was measured so far, in the order in which it was first measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures(Vec<Figure>);

/// One line of the result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    /// What was measured.
    pub(super) name: String,
    /// Of what the two values are.
    pub(super) unit: &'static str,
    /// The median over the rounds.
    pub(super) ours: Option<f64>,
    /// The median over the rounds.
    pub(super) etcd: Option<f64>,
    /// How many times better ours is: the median of the rounds' ratios. Absent where a request
    /// failed or a round is not whole.
    pub(super) ratio: Option<f64>,
    /// How far a round's ratio was from the median, at most, as a part of the median.
    pub(super) spread: Option<f64>,
    /// Requests that failed.
    #[serde(skip)]
    pub(super) failed: u64,
}

impl Figures {
    /// Adds one value of one side. Values of a side come in the order of the rounds.
    pub(super) fn add(
        &mut self,
        side: Side,
        name: &str,
        unit: &'static str,
        better: Better,
        value: f64,
    ) {
        let figure = self.figure(name, unit, better);
        match side {
            Side::Ours => figure.ours.push(value),
            Side::Etcd => figure.etcd.push(value),
        }
    }

    /// Notes that requests failed while this was measured.
    pub(super) fn failed(&mut self, name: &str, unit: &'static str, better: Better, failed: u64) {
        self.figure(name, unit, better).failed += failed;
    }

    fn figure(&mut self, name: &str, unit: &'static str, better: Better) -> &mut Figure {
        let known = self.0.iter().position(|figure| figure.name == name);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(Figure {
                name: name.to_owned(),
                unit,
                better,
                ours: Vec::new(),
                etcd: Vec::new(),
                failed: 0,
            });
        }
        &mut self.0[at]
    }

    /// The median of one side so far, if it was measured and nothing failed.
    pub(super) fn median(&self, side: Side, name: &str) -> Option<f64> {
        let figure = self.0.iter().find(|figure| figure.name == name);
        let figure = figure.filter(|figure| figure.failed == 0)?;
        median(match side {
            Side::Ours => &figure.ours,
            Side::Etcd => &figure.etcd,
        })
    }

    /// The largest ratio that the rates of a load without pauses can show: that of a server without any cost, where the
    /// client's thread does nothing else but ask. `None` if a side or its client was not measured, or a request failed.
    pub(super) fn bound(&self, name: &str) -> Option<Line> {
        let each = self.median(Side::Ours, &format!("{name}, client CPU"))?;
        let theirs = self.median(Side::Etcd, name)?;
        let bound = 1e6 / each / theirs;
        let name = format!("{name}, a second, with a server that costs nothing");
        Some(Line::bound(name, bound))
    }

    /// The largest ratio that the rate of one client's puts can show: that of a server which does nothing but write and sync
    /// each of them, which took so many seconds. `None` if etcd was not measured, or a request failed.
    pub(super) fn sync_bound(&self, name: &str, syncs: &[f64]) -> Option<Line> {
        let theirs = self.median(Side::Etcd, name)?;
        let bound = 1.0 / median(syncs)? / theirs;
        let name = format!("{name}, a second, with a server that only syncs");
        Some(Line::bound(name, bound))
    }

    /// The result, one line per figure.
    pub(super) fn lines(&self) -> Vec<Line> {
        self.0.iter().map(Figure::line).collect()
    }
}

impl Line {
    fn bound(name: String, ratio: f64) -> Self {
        Line {
            name,
            unit: "bound",
            ours: None,
            etcd: None,
            ratio: Some(ratio).filter(|ratio| ratio.is_finite()),
            spread: None,
            failed: 0,
        }
    }
}

impl Figure {
    fn line(&self) -> Line {
        let mut line = Line {
            name: self.name.clone(),
            unit: self.unit,
            ours: median(&self.ours),
            etcd: median(&self.etcd),
            ratio: None,
            spread: None,
            failed: self.failed,
        };
        let ratio: fn(f64, f64) -> f64 = match self.better {
            Better::Higher => |ours, etcd| ours / etcd,
            Better::Lower => |ours, etcd| etcd / ours,
            Better::Neither => return line,
        };
        if self.failed > 0 || self.ours.len() != self.etcd.len() {
            return line;
        }
        let pairs = self.ours.iter().zip(&self.etcd);
        let ratios: Vec<f64> = pairs.map(|(ours, etcd)| ratio(*ours, *etcd)).collect();
        if !ratios.iter().all(|ratio| ratio.is_finite()) {
            return line;
        }
        line.ratio = median(&ratios);
        line.spread = line.ratio.filter(|_| ratios.len() > 1).map(|middle| {
            let far = |ratio: &f64| (ratio / middle - 1.0).abs();
            ratios.iter().map(far).fold(0.0, f64::max)
        });
        line
    }
}

/// The middle value; between two, their mean.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    match sorted.len() % 2 {
        1 => Some(*upper),
        _ => Some(f64::midpoint(sorted[middle - 1], *upper)),
    }
}

/// The result as a table for people.
pub(super) fn table(lines: &[Line]) -> String {
    let head = ["figure", "unit", "ours", "etcd", "better", "spread"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(lines.iter().map(row)).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{:<w0$}  {:<w1$}",
            row[0],
            row[1],
            w0 = widths[0],
            w1 = widths[1]
        );
        for (cell, width) in row.iter().zip(widths).skip(2) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn row(line: &Line) -> [String; 6] {
    let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let better = match line.ratio {
        Some(ratio) => format!("{ratio:.2} x"),
        None if line.failed > 0 => format!("{} failed", line.failed),
        None => "-".to_owned(),
    };
    let spread = line
        .spread
        .map_or_else(String::new, |spread| format!("± {:.0} %", spread * 100.0));
    [
        line.name.clone(),
        line.unit.to_owned(),
        value(line.ours),
        value(line.etcd),
        better,
        spread,
    ]
}

/// About three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at) % 3 == 0 && digit.is_ascii_digit() {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        middle if middle >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(figures: &mut Figures, name: &str, better: Better, pairs: &[(f64, f64)]) {
        for (ours, etcd) in pairs {
            figures.add(Side::Ours, name, "a second", better, *ours);
            figures.add(Side::Etcd, name, "a second", better, *etcd);
        }
    }

    #[test]
    fn ratios_are_paired_by_round() {
        let mut figures = Figures::default();
        // The machine was twice as fast in the second round: the ratio does not see it.
        let rounds = [(300.0, 100.0), (600.0, 200.0), (330.0, 100.0)];
        pairs(&mut figures, "put", Better::Higher, &rounds);
        pairs(
            &mut figures,
            "p99",
            Better::Lower,
            &[(1.0, 4.0), (2.0, 4.0)],
        );
        let lines = figures.lines();
        assert_eq!(lines[0].ours, Some(330.0));
        assert_eq!(lines[0].ratio, Some(3.0));
        assert!((lines[0].spread.expect("three rounds") - 0.1).abs() < 1e-9);
        assert_eq!(lines[1].ratio, Some(3.0), "the mean of 4 and 2");
        assert!((lines[1].spread.expect("two rounds") - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn no_ratio_with_failures_or_partial_rounds() {
        let mut figures = Figures::default();
        pairs(&mut figures, "put", Better::Higher, &[(300.0, 100.0)]);
        figures.failed("put", "a second", Better::Higher, 7);
        figures.add(Side::Ours, "get", "a second", Better::Higher, 1.0);
        pairs(&mut figures, "zero", Better::Higher, &[(1.0, 0.0)]);
        pairs(&mut figures, "one round", Better::Lower, &[(1.0, 2.0)]);
        let lines = figures.lines();
        let ratios: Vec<_> = lines.iter().map(|line| line.ratio).collect();
        assert_eq!(ratios, [None, None, None, Some(2.0)]);
        assert_eq!(lines[3].spread, None, "one round has no spread");
        let text = table(&lines);
        assert!(text.contains("7 failed"), "{text}");
        assert!(!text.contains("3.00 x"), "{text}");
    }

    /// 50 us of the client's thread allow 20,000 a second, whatever the server costs.
    #[test]
    fn a_bound_is_what_the_client_allows() {
        let mut figures = Figures::default();
        assert_eq!(figures.bound("put"), None);
        pairs(&mut figures, "put", Better::Higher, &[(9_000.0, 5_000.0)]);
        pairs(
            &mut figures,
            "put, client CPU",
            Better::Lower,
            &[(50.0, 80.0)],
        );
        pairs(&mut figures, "share", Better::Neither, &[(20.0, 10.0)]);
        let bound = figures.bound("put").expect("both were measured");
        assert_eq!(bound.ratio, Some(4.0));
        assert_eq!(figures.lines()[2].ratio, None, "a share is not better");
        figures.failed("put", "a second", Better::Higher, 1);
        assert_eq!(figures.bound("put"), None);
    }

    /// A sync of 2 ms allows 500 a second.
    #[test]
    fn a_bound_of_one_client_is_what_the_disk_allows() {
        let mut figures = Figures::default();
        assert_eq!(figures.sync_bound("put", &[0.002]), None);
        pairs(&mut figures, "put", Better::Higher, &[(300.0, 250.0)]);
        assert_eq!(figures.sync_bound("put", &[]), None);
        let bound = figures.sync_bound("put", &[0.001, 0.002, 0.004]);
        assert_eq!(bound.expect("both were measured").ratio, Some(2.0));
    }

    #[test]
    fn table_is_aligned_and_json_has_six_fields() {
        let mut figures = Figures::default();
        let rounds = [(12_345.6, 4_000.0), (12_000.0, 4_000.0)];
        pairs(&mut figures, "put, 1,000 clients", Better::Higher, &rounds);
        pairs(
            &mut figures,
            "p99",
            Better::Lower,
            &[(1.5, 3.0), (1.5, 3.0)],
        );
        let lines = figures.lines();
        let want = "\
figure              unit        ours   etcd  better  spread
put, 1,000 clients  a second  12,173  4,000  3.04 x   ± 1 %
p99                 a second    1.50   3.00  2.00 x   ± 0 %
";
        assert_eq!(table(&lines), want);
        let json = serde_json::to_value(&lines[1]).expect("serialises");
        let want = serde_json::json!({
            "name": "p99", "unit": "a second", "ours": 1.5, "etcd": 3.0, "ratio": 2.0, "spread": 0.0,
        });
        assert_eq!(json, want);
    }
}
