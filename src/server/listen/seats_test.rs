//! Which connections are closed when all seats are taken.

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use super::{Leave, Occupied, Seats};

fn from(text: &str) -> Option<IpAddr> {
    Some(text.parse().expect("an address"))
}

/// Admits a new connection; connections that are asked to close do so.
async fn admit(
    seats: &std::sync::Arc<Seats>,
    held: &mut Vec<Option<Occupied>>,
    host: &str,
) -> bool {
    let newcomer = seats.admit(from(host));
    let mut newcomer = std::pin::pin!(newcomer);
    loop {
        if let Some(seat) = futures::FutureExt::now_or_never(newcomer.as_mut()) {
            let admitted = seat.is_some();
            held.push(seat);
            return admitted;
        }
        for seat in &mut *held {
            let asked = seat.as_ref().is_some_and(|seat| seat.seat.go.is_set());
            if asked {
                *seat = None;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Lets pass the time between two searches, and the ends of requests.
async fn respite() {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
}

/// 600 idle connections used up all file descriptors of a server with a limit of 256: no client
/// could connect any more, and the server ended because it could not create the next file of its
/// log.
#[tokio::test]
async fn idle_connections_make_room() {
    let seats = Seats::new("client", 10, 100);
    let mut held = Vec::new();
    for _ in 0..3 {
        assert!(admit(&seats, &mut held, "10.0.0.1").await);
    }
    let busy = held[0]
        .as_ref()
        .expect("held")
        .handle()
        .begin()
        .expect("a call");
    drop(held[1].as_ref().expect("held").handle().begin());
    for _ in 0..600 {
        assert!(admit(&seats, &mut held, "10.0.0.2").await);
        assert!(seats.taken() <= 10);
    }
    assert!(held[0].is_some(), "it is being answered");
    assert!(
        held[1].is_some(),
        "it had a response, and others had no request"
    );
    assert!(held[2].is_none(), "the oldest without a request");
    assert_eq!(seats.evicted.load(Relaxed), 593);
    assert_eq!(seats.refused.load(Relaxed), 0);
    drop(busy);
}

#[tokio::test]
async fn longest_idle_connection_is_closed_first() {
    let seats = Seats::new("client", 3, 100);
    let mut held = Vec::new();
    for _ in 0..3 {
        assert!(admit(&seats, &mut held, "10.0.0.1").await);
        respite().await;
        drop(
            held.last()
                .expect("held")
                .as_ref()
                .expect("a seat")
                .handle()
                .begin(),
        );
    }
    let first = held[0].as_ref().expect("a seat").handle();
    // It need not be closed yet: there is time to notify its client.
    assert!(seats.admit(from("10.0.0.2")).await.is_some());
    assert_eq!(first.asked_to_leave().await, Leave::Gracefully);
    drop(held);
    assert_eq!((seats.taken(), seats.calls()), (0, 0));
    assert_eq!(seats.leaving.load(Relaxed), 0);
}

/// Requests that never end count as use, so a host that has more than half of the seats gives them
/// up to other hosts, but not to itself.
#[tokio::test]
async fn no_host_keeps_more_than_half() {
    let seats = Seats::new("client", 10, 1000);
    let (mut held, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        assert!(admit(&seats, &mut held, "10.0.0.1").await);
        let seat = held.last().expect("held").as_ref().expect("a seat");
        calls.push(seat.handle().begin().expect("a call"));
    }
    assert!(
        !admit(&seats, &mut held, "10.0.0.1").await,
        "its own share is used up"
    );
    for _ in 0..5 {
        respite().await;
        assert!(!admit(&seats, &mut held, "::ffff:10.0.0.1").await);
        assert!(admit(&seats, &mut held, "10.0.0.2").await);
        let seat = held.last().expect("held").as_ref().expect("a seat");
        calls.push(seat.handle().begin().expect("a call"));
    }
    respite().await;
    assert!(
        !admit(&seats, &mut held, "10.0.0.3").await,
        "two halves: none is too large"
    );
    assert_eq!(seats.refused.load(Relaxed), 7);
}

/// A connection that waited for a seat had another one closed each time that any connection ended,
/// and new ones that came at once closed each other.
#[tokio::test]
async fn each_newcomer_displaces_one_connection() {
    use futures::FutureExt as _;
    let seats = Seats::new("client", 2, 100);
    let one = seats.admit(None).await.expect("free");
    let two = seats.admit(None).await.expect("free");
    let mut first = Box::pin(seats.admit(None));
    let mut second = Box::pin(seats.admit(None));
    assert!(first.as_mut().now_or_never().is_none(), "it waits");
    assert!(second.as_mut().now_or_never().is_none(), "it waits");
    drop(two);
    let first = first.now_or_never().expect("woken").expect("a seat");
    assert!(second.as_mut().now_or_never().is_none(), "one is going");
    assert_eq!(seats.evicted.load(Relaxed), 2);
    drop(one);
    assert!(second.await.is_some());
    assert_eq!(seats.evicted.load(Relaxed), 2);
    assert!(!first.seat.go.is_set());
}

#[tokio::test]
async fn one_connection_gets_half_of_the_requests() {
    let seats = Seats::new("client", 10, 8);
    let one = seats.admit(None).await.expect("a seat");
    let two = seats.admit(None).await.expect("a seat");
    let calls = |seat: &Occupied| -> Vec<_> {
        std::iter::from_fn(|| seat.handle().begin())
            .take(100)
            .collect()
    };
    let first = calls(&one);
    assert_eq!(first.len(), 4);
    let second = calls(&two);
    assert_eq!(second.len(), 4);
    assert_eq!(seats.refused_calls.load(Relaxed), 2);
    drop(first);
    assert_eq!(seats.calls(), 4);
}

/// While a thousand requests were pending, a probe was above the limit: the kubelet restarted a
/// server that was merely busy.
#[tokio::test]
async fn probes_have_a_reserve() {
    let seats = Seats::new("client", 10, 8);
    let one = seats.admit(None).await.expect("a seat");
    let two = seats.admit(None).await.expect("a seat");
    let busy: Vec<_> = [&one, &two]
        .into_iter()
        .flat_map(|seat| std::iter::from_fn(|| seat.handle().begin()).collect::<Vec<_>>())
        .collect();
    assert_eq!(busy.len(), 8);
    let probes = |seat: &Occupied| -> Vec<_> {
        std::iter::from_fn(|| seat.handle().begin_probe())
            .take(100)
            .collect()
    };
    let first = probes(&one);
    assert_eq!(first.len(), super::PROBES_EACH, "and not without a bound");
    let kubelet = seats.admit(None).await.expect("a seat");
    assert!(kubelet.handle().begin_probe().is_some());
    assert!(kubelet.handle().begin().is_none());
}
