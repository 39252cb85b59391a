//! Requests that change what a member accepts and end in the same state as before: alarms that are raised and
//! disarmed, and a learner that is added and removed.

use quorate::wire::etcd::{AlarmRequest, MemberAddRequest};

use crate::generator::Generator;
use crate::question::{Facts, LEARNER, OWN_ID, Question, question};

const GET: i32 = 0;
pub(crate) const ACTIVATE: i32 = 1;
pub(crate) const DEACTIVATE: i32 = 2;
const NOSPACE: i32 = 1;
pub(crate) const CORRUPT: i32 = 2;

fn alarm(action: i32, member_id: u64, alarm: i32) -> Question {
    Question::Alarm(AlarmRequest {
        action,
        member_id,
        alarm,
    })
}

/// Some requests under alarms: NOSPACE, CORRUPT, or both.
pub(crate) fn alarms(generator: &mut Generator, facts: &Facts) -> Vec<Question> {
    let members = [OWN_ID, 5];
    let mut raised = Vec::new();
    let mut all = Vec::new();
    for _ in 0..generator.between(1, 3) {
        let kind = if generator.one_in(3) {
            CORRUPT
        } else {
            NOSPACE
        };
        let member = members[generator.below(2) as usize];
        raised.push((member, kind));
        all.push(alarm(ACTIVATE, member, kind));
        for _ in 0..generator.between(2, 8) {
            all.push(question(generator, facts));
        }
        all.extend([
            alarm(GET, 0, generator.between(0, 2) as i32),
            Question::Status,
        ]);
    }
    for (member, kind) in raised {
        all.push(alarm(DEACTIVATE, member, kind));
        all.push(question(generator, facts));
    }
    all.extend([alarm(GET, 0, 0), Question::Status]);
    all
}

/// A learner that is never started, from its addition to its removal. Port 1 has no listener.
pub(crate) fn learner(generator: &mut Generator, facts: &mut Facts) -> Vec<Question> {
    let mut url = || {
        // A new address each time, because etcd derives member IDs from addresses and the time in seconds.
        facts.learners += 1;
        format!("http://127.0.0.{}:1", 2 + facts.learners % 250)
    };
    let [first, second, third] = [url(), url(), url()];
    let add = |url: &String| {
        Question::MemberAdd(MemberAddRequest {
            peer_ur_ls: vec![url.clone()],
            is_learner: true,
        })
    };
    let mut all = vec![add(&first), Question::Members, add(&second)];
    all.extend([Question::MemberPromote(LEARNER), question(generator, facts)]);
    all.push(Question::MoveLeader(LEARNER));
    if generator.one_in(2) {
        all.push(Question::MemberUpdate(LEARNER, third));
    }
    all.extend([question(generator, facts), Question::Members]);
    for last in [
        Question::MemberRemove(LEARNER),
        Question::MemberRemove(LEARNER),
        Question::MemberPromote(LEARNER),
        Question::MemberUpdate(LEARNER, second),
    ] {
        all.extend([last, Question::Members]);
    }
    all
}
