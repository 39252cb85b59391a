//! Background faults, in addition to those of the nemesis: a network that is slow or loses messages, slow disks, and
//! wall clocks that jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::nemesis::Counts;
use crate::proxy::{Network, Way};
use crate::schedule::{SOFT, Schedule, Soft};
use crate::server::Place;
use crate::traffic::client::Directory;

/// Background faults, concurrent with those of the nemesis, until stopped; then their changes are reverted.
pub(crate) async fn background_faults(
    network: Arc<Network>,
    directory: Directory,
    seed: u64,
    enough: Arc<AtomicBool>,
    counts: Counts,
) {
    for strike in Schedule::new(SOFT, seed ^ 0x5eed, (2_000, 6_000)) {
        sleep(strike.after).await;
        if enough.load(Ordering::Relaxed) {
            return;
        }
        let places = directory.lock().expect("unpoisoned").clone();
        let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
        let one = &places[strike.target % places.len()];
        match strike.fault {
            Soft::Delay => {
                let slow = |way: &mut Way| {
                    way.delay = Duration::from_millis(20);
                    way.jitter = Duration::from_millis(100);
                };
                network.change_all(&names, slow);
            }
            Soft::DelayOneWay => {
                for to in &names {
                    let late = Duration::from_millis(250);
                    network.change(&one.name, to, |way| way.delay = late);
                }
            }
            Soft::Lose => network.change_all(&names, |way| way.loss = 100),
            Soft::SlowDisk => one.page.set(Place::SyncMicros, 150_000),
            Soft::SlowDisks => {
                for place in &places {
                    place.page.set(Place::SyncMicros, 20_000);
                }
            }
            Soft::JumpClock => one.page.set(Place::ClockSeconds, jump(strike.other)),
            Soft::JumpClocks => {
                for (at, place) in places.iter().enumerate() {
                    let seconds = jump(strike.other + at);
                    place.page.set(Place::ClockSeconds, seconds);
                }
            }
        }
        let begun = Instant::now();
        while begun.elapsed() < strike.lasts && !enough.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(50)).await;
        }
        network.change_all(&names, |way| {
            *way = Way {
                cut: way.cut,
                ..Way::default()
            };
        });
        for place in &places {
            place.page.set(Place::ClockSeconds, 0);
            if matches!(strike.fault, Soft::SlowDisk | Soft::SlowDisks) {
                place.page.set(Place::SyncMicros, 0);
            }
        }
        counts.add(format!("fault {:?}", strike.fault), 1);
    }
}

/// An hour, a day and a year, forwards and backwards, in seconds.
fn jump(number: usize) -> i64 {
    const JUMPS: [i64; 6] = [3_600, -3_600, 86_400, -86_400, 31_536_000, -31_536_000];
    JUMPS[number % JUMPS.len()]
}
