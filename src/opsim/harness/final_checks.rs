//! What every run is held to at its end, whatever it was about: the operator asked for nothing that
//! its role does not allow and nothing that is not modelled, and what was to disturb it did.

use super::request_faults::lock;
use super::world::{Failure, World};

impl World {
    /// Fails where a run shows less than it seems to.
    pub(crate) fn final_checks(&self) -> Result<(), Failure> {
        let ledger = lock(&self.ledger);
        if let Some(why) = ledger.forbidden.first() {
            return Err(self.unexpected(format!("the operator's role does not allow it: {why}")));
        }
        if let Some(what) = self.api.lock().not_modelled().first() {
            return Err(self.unexpected(format!("the simulated API server cannot do it: {what}")));
        }
        if let Some(what) = ledger.late.first() {
            return Err(self.unexpected(format!("an operator acted after its successor: {what}")));
        }
        if let Some(what) = lock(&self.servers).deceived.first() {
            return Err(self.unexpected(format!("a stranger's pod was asked: {what}")));
        }
        if self.intruder && self.intruders == 0 {
            return Err(self.unexpected("no stranger came"));
        }
        if let Some((at, _)) = ledger.plan.filter(|_| !ledger.disturbed) {
            return Err(self.unexpected(format!("there was no write {at} to disturb")));
        }
        if self.options.second_leader.is_some() && !self.by_lease && !self.second_leader.came {
            return Err(self.unexpected("no second operator came"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, DeleteParams, ListParams, PostParams};

    use super::super::world::Options;
    use super::*;
    use crate::opsim::harness::request_faults::Crash;

    fn why(world: &World) -> String {
        world
            .final_checks()
            .expect_err("something is wrong")
            .to_string()
    }

    #[tokio::test]
    async fn forbidden_request_fails_the_run() {
        let world = World::new(Options::calm(1));
        let client = world.api.client("operator-1", "default");
        let pods: Api<Pod> = Api::default_namespaced(client);
        let listed = pods.list(&ListParams::default()).await;
        assert!(listed.is_ok() && world.final_checks().is_ok(), "{listed:?}");
        let gone = pods.delete("demo-1-0", &DeleteParams::default()).await;
        assert!(
            gone.is_err() && world.final_checks().is_ok(),
            "there is no such pod"
        );
        let refused = pods.create(&PostParams::default(), &Pod::default()).await;
        let refused = refused.expect_err("it may delete and evict pods, and make none");
        assert!(refused.to_string().contains("cannot create"), "{refused}");
        assert!(why(&world).contains("pods"), "{}", why(&world));
    }

    #[tokio::test]
    async fn unmodelled_requests_fail_the_run() {
        let world = World::new(Options::calm(1));
        let client = world.api.client("operator-1", "default");
        let pods: Api<Pod> = Api::default_namespaced(client);
        let dry = DeleteParams::default().dry_run();
        let asked = pods.delete("demo-1-0", &dry).await;
        let noted = !world.api.lock().not_modelled().is_empty();
        assert!(noted, "{asked:?}");
        assert!(why(&world).contains("cannot do it"), "{}", why(&world));
    }

    #[test]
    fn a_fault_that_never_came_fails_the_run() {
        let options = |crash, second_leader| Options {
            crash,
            second_leader,
            ..Options::calm(1)
        };
        let world = World::new(options(Some((7, Crash::After)), None));
        assert!(why(&world).contains("no write 7"), "{}", why(&world));
        let world = World::new(options(None, Some(7)));
        assert!(
            why(&world).contains("no second operator"),
            "{}",
            why(&world)
        );
    }
}
