//! Tests of what needs no server.

use std::time::Duration;

use super::load::{Load, Pace, Schedule, Ticket};
use super::summary::{Summary, Tally};
use super::work::{Keys, Mode, Work};

fn load(pace: Pace, total: Option<u64>, seconds: Option<u64>) -> Load {
    let keys = Keys::new("k/", 8, 10).expect("fits");
    Load {
        endpoints: vec!["http://127.0.0.1:1".to_owned()],
        connections: 1,
        clients: 1,
        threads: 1,
        total,
        seconds: seconds.map(Duration::from_secs),
        warm_up: Duration::from_secs(1),
        pace,
        timeout: Duration::from_secs(1),
        work: Work::new(Mode::Put { sequential: true }, keys, 8, 1),
        seed: 1,
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn closed_loop_warms_up_by_time() {
    let schedule = Schedule::new(&load(Pace::Closed, Some(2), None));
    let ticket = |number, measured| {
        Some(Ticket {
            number,
            measured,
            due: None,
        })
    };
    assert_eq!(schedule.next(ms(0)), ticket(0, false));
    assert_eq!(schedule.next(ms(999)), ticket(1, false));
    assert_eq!(schedule.next(ms(1000)), ticket(0, true));
    assert_eq!(schedule.next(ms(60_000)), ticket(1, true));
    assert_eq!(schedule.next(ms(60_001)), None);
}

#[test]
fn seconds_end_a_closed_loop_after_the_warm_up() {
    let schedule = Schedule::new(&load(Pace::Closed, None, Some(2)));
    assert!(schedule.next(ms(2_999)).is_some());
    assert_eq!(schedule.next(ms(3_000)), None);
}

#[test]
fn a_rate_is_kept_whatever_the_clients_do() {
    // 4 a second with a second of warm-up: slots 0 to 3 warm, then two are measured.
    let schedule = Schedule::new(&load(Pace::Rate(4.0), Some(2), None));
    // All asked for at once, as by clients that were held up.
    let tickets: Vec<Ticket> = std::iter::from_fn(|| schedule.next(ms(9_000))).collect();
    let due: Vec<u64> = tickets
        .iter()
        .map(|ticket| ticket.due.expect("paced").as_millis() as u64)
        .collect();
    assert_eq!(due, [0, 250, 500, 750, 1000, 1250]);
    let measured: Vec<u64> = tickets
        .iter()
        .filter(|ticket| ticket.measured)
        .map(|ticket| ticket.number)
        .collect();
    assert_eq!(measured, [0, 1]);
}

#[tokio::test]
async fn latency_counts_from_the_due_time() {
    let begun = std::time::Instant::now() - ms(500);
    let from = super::load::start(begun, Some(ms(100))).await;
    assert_eq!(from, ms(100), "400 ms late");
    let due = begun.elapsed() + ms(5);
    let from = super::load::start(begun, Some(due)).await;
    assert!(from >= due, "waited for, and measured from the start");
}

#[test]
fn keys_have_the_size_asked_for_and_begin_again() {
    let keys = Keys::new("bench/", 10, 100).expect("fits");
    assert_eq!(keys.key(7), "bench/0007");
    assert_eq!(keys.key(107), keys.key(7));
    let error = Keys::new("bench/", 8, 1_000).expect_err("three digits do not fit");
    assert!(
        error.to_string().contains("need 9 bytes each, not 8"),
        "{error}"
    );
}

#[test]
fn failures_are_kept_up_to_a_bound() {
    let mut tally = Tally::default();
    tally.record(ms(3), Ok(()));
    for number in 0..30 {
        tally.record(ms(1), Err(format!("failure {number}")));
    }
    let mut other = Tally::default();
    other.record(ms(5), Ok(()));
    other.fail("failure 0".to_owned(), 4);
    tally.add(other);
    assert_eq!((tally.answered(), tally.failed()), (2, 34));
    let summary = Summary {
        what: "put".to_owned(),
        unit: "answers",
        elapsed: ms(500),
        tally,
    };
    let text = summary.to_string();
    assert!(
        text.contains("2 answers in 0.50 s: 4.0 a second, 34 failed"),
        "{text}"
    );
    assert!(text.contains("failed 10 times: others"), "{text}");
    assert!(text.contains("failed 5 times: failure 0"), "{text}");
    let json = serde_json::to_value(&summary).expect("serialises");
    assert_eq!(json["failed"], 34);
    assert_eq!(json["latency_ms"]["p50"], 3.001);
}
