//! Linearizability of what clients were answered. The store gives a total order, its revisions,
//! so checking is quick: a write stands at its revision and its answer shows the keys as they
//! were just before; a read returns the keys as of its revision; no operation is ordered before
//! what was applied anywhere when it began. A write that was not answered is of unknown fate: it
//! may be there or not, but not twice. One that was refused for good is not there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::history::{Change, History};
use super::reference_model::{self, ReferenceModel};
use super::{Verdict, Violation};
use crate::mutants::mutant;
use crate::store::{Operation, Range, RangeResponse, Response, Revision};

/// What is known of the values that clients write, each of which is written once.
#[derive(Debug, Default)]
pub(in crate::sim) struct Linear {
    written: BTreeMap<Bytes, (Revision, Bytes)>,
    refused: BTreeSet<Bytes>,
}

impl Linear {
    /// A change was applied for the first time.
    pub(in crate::sim) fn changed(&mut self, change: &Change) -> Verdict {
        let Some(value) = change.kv.as_ref().map(|kv| kv.value.clone()) else {
            return Ok(());
        };
        if !unique(&value) {
            return Ok(());
        }
        if self.refused.contains(&value) && !mutant!(BlindRefused) {
            return Err(violation(format!(
                "{} was refused for good and is there at revision {}",
                short(&value),
                change.revision
            )));
        }
        let place = (change.revision, change.key.clone());
        match self.written.insert(value.clone(), place) {
            Some((before, _)) if !mutant!(BlindTwice) => Err(violation(format!(
                "{} was written once and is there at revisions {before} and {}",
                short(&value),
                change.revision
            ))),
            _ => Ok(()),
        }
    }

    /// A write was refused, with the word that it has left no trace and will not.
    pub(in crate::sim) fn refused(&mut self, operation: &Operation) -> Verdict {
        for value in reference_model::values(operation)
            .into_iter()
            .filter(unique)
        {
            if let Some((revision, _)) = self.written.get(&value) {
                return Err(violation(format!(
                    "{} was refused for good but is there at revision {revision}",
                    short(&value)
                )));
            }
            self.refused.insert(value);
        }
        Ok(())
    }

    /// A write was acknowledged that began when the store stood at a revision.
    pub(in crate::sim) fn wrote(
        &self,
        history: &History,
        operation: &Operation,
        response: &Response,
        began: Revision,
    ) -> Verdict {
        let at = response.revision();
        if at < began && !mutant!(BlindOrder) {
            return Err(violation(format!(
                "{operation:?} is answered at revision {at} and began when {began} was applied"
            )));
        }
        // If it changed something, this is the revision of the change; if not, it saw this one.
        let changing =
            reference_model::evaluate(ReferenceModel::new(history.state(at - 1), at), operation);
        let wrote = at > began
            && changing.changed()
            && changing.fits(response)
            && changing.state() == &history.state(at);
        let idle =
            reference_model::evaluate(ReferenceModel::new(history.state(at), at + 1), operation);
        let idle = !idle.changed() && idle.fits(response);
        if wrote || idle || mutant!(BlindLostWrite) {
            return Ok(());
        }
        Err(violation(format!(
            "{operation:?} was answered {response:?}, which no state gives; it began at {began}; \
             before it was {:?}, after it {:?}",
            history.state(at - 1),
            history.state(at)
        )))
    }

    /// A read was answered: a linearizable one that began when the store stood at a revision, or
    /// (`None`) one of whatever the member had.
    pub(in crate::sim) fn read(
        &self,
        history: &History,
        range: &Range,
        response: &RangeResponse,
        began: Option<Revision>,
    ) -> Verdict {
        let began = began.filter(|_| !mutant!(BlindStaleRead));
        if let Some(began) = began.filter(|began| response.revision < *began) {
            return Err(violation(format!(
                "a stale read of {:?}: answered at revision {}, begun when {began} was applied",
                range.key, response.revision
            )));
        }
        let at = match range.revision {
            0 => response.revision,
            at => at,
        };
        let expected = reference_model::range(&history.state(at), range);
        let there = expected == (response.kvs.clone(), response.count);
        if response.revision > history.revision() || !(there || mutant!(BlindValue)) {
            return Err(violation(format!(
                "a read of {range:?} at revision {at} of {} gave {response:?}, and not {expected:?}",
                response.revision
            )));
        }
        Ok(())
    }
}

/// Values that a client writes begin with its name, and no two are equal.
fn unique(value: &Bytes) -> bool {
    value.starts_with(b"client ")
}

fn short(value: &Bytes) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

fn violation(text: String) -> Violation {
    Violation::new("linearizability", text)
}

#[cfg(test)]
mod tests {
    use super::super::history::{event, example};
    use super::*;
    use crate::store::{DeleteRange, DeleteRangeResponse, KeyValue, Put, PutResponse, TxnResponse};

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn put(key: &'static str, value: &'static str) -> Operation {
        Operation::Put(Put {
            key: bytes(key),
            value: bytes(value),
            prev_kv: true,
            ..Put::default()
        })
    }

    fn answer(revision: Revision, prev_kv: Option<KeyValue>) -> Response {
        Response::Put(PutResponse { revision, prev_kv })
    }

    #[test]
    fn detects_lost_late_and_wrong_writes() {
        let (history, linear) = (example(), Linear::default());
        let before = Some(event(2, "a", Some("1"), (2, 1)).kv);
        let wrote =
            |op: &Operation, answer: &Response, began| linear.wrote(&history, op, answer, began);
        assert_eq!(wrote(&put("a", "3"), &answer(4, before.clone()), 3), Ok(()));
        assert!(wrote(&put("a", "x"), &answer(4, before.clone()), 3).is_err());
        assert!(wrote(&put("a", "3"), &answer(4, None), 3).is_err());
        assert!(wrote(&put("a", "3"), &answer(4, before), 4).is_err());
        assert!(wrote(&put("a", "3"), &answer(7, None), 0).is_err());
    }

    #[test]
    fn deletes_are_checked_by_the_model() {
        let (history, linear) = (example(), Linear::default());
        let delete = Operation::DeleteRange(DeleteRange {
            key: bytes("a"),
            ..DeleteRange::default()
        });
        let answer = |revision, deleted| {
            Response::DeleteRange(DeleteRangeResponse {
                revision,
                deleted,
                prev_kvs: Vec::new(),
            })
        };
        assert_eq!(linear.wrote(&history, &delete, &answer(5, 1), 4), Ok(()));
        assert_eq!(linear.wrote(&history, &delete, &answer(6, 0), 6), Ok(()));
        assert!(linear.wrote(&history, &delete, &answer(5, 0), 6).is_err());
        assert!(linear.wrote(&history, &delete, &answer(4, 0), 4).is_err());
        assert!(linear.wrote(&history, &delete, &answer(6, 1), 4).is_err());
    }

    #[test]
    fn detects_the_wrong_txn_branch() {
        let (history, linear) = (example(), Linear::default());
        let txn = Operation::Txn(crate::store::Txn {
            compare: vec![crate::store::Compare {
                key: bytes("b"),
                target: crate::store::CompareTarget::Version as i32,
                number: 1,
                ..Default::default()
            }],
            ..Default::default()
        });
        let answer = |succeeded| {
            Response::Txn(TxnResponse {
                revision: 5,
                succeeded,
                responses: Vec::new(),
            })
        };
        assert_eq!(linear.wrote(&history, &txn, &answer(true), 5), Ok(()));
        assert!(linear.wrote(&history, &txn, &answer(false), 5).is_err());
    }

    #[test]
    fn detects_stale_reads_and_wrong_values() {
        let (history, linear) = (example(), Linear::default());
        let range = Range {
            key: bytes("b"),
            ..Range::default()
        };
        let answer = |revision, kv: &KeyValue| RangeResponse {
            revision,
            kvs: vec![kv.clone()],
            count: 1,
            more: false,
        };
        let (old, new) = (
            event(3, "b", Some("2"), (3, 1)).kv,
            event(6, "b", Some("4"), (3, 2)).kv,
        );
        let read = |answer: &RangeResponse, began| linear.read(&history, &range, answer, began);
        assert_eq!(read(&answer(5, &old), Some(5)), Ok(()));
        assert_eq!(read(&answer(6, &new), Some(5)), Ok(()));
        assert!(read(&answer(5, &old), Some(6)).is_err());
        assert_eq!(read(&answer(5, &old), None), Ok(()));
        assert!(read(&answer(6, &old), None).is_err());
        assert!(read(&answer(7, &new), None).is_err());
    }

    #[test]
    fn detects_duplicate_and_refused_writes() {
        let mut linear = Linear::default();
        let mut history = History::default();
        let mut apply = |linear: &mut Linear, revision, version| {
            let event = event(revision, "k", Some("client 1 write 1"), (2, version));
            history.changed(&event).expect("in order");
            let (_, change) = history
                .from(history.until(revision) - 1)
                .next()
                .expect("it");
            linear.changed(change)
        };
        assert_eq!(apply(&mut linear, 2, 1), Ok(()));
        assert!(apply(&mut linear, 3, 2).is_err());
        assert!(linear.refused(&put("k", "client 1 write 1")).is_err());
        let other = put("k", "client 1 write 2");
        assert_eq!(linear.refused(&other), Ok(()));
        let event = event(4, "k", Some("client 1 write 2"), (2, 3));
        let change = Change {
            revision: 4,
            key: bytes("k"),
            kv: Some(event.kv),
        };
        assert!(linear.changed(&change).is_err());
    }
}
