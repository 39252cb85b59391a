//! What the API server makes of an action on a member's set. Its pod follows from it: see `kubelets`.

use super::objects::free;
use super::{Model, Refused};
use crate::plan::{Owner, ServerFacts, SetFacts};

/// Properties of a StatefulSet's pods that are not observed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Template {
    /// The server speaks TLS on its peer port.
    pub peer_tls: bool,
    /// What else the server is started with.
    pub server: ServerFacts,
    /// Its pod begins on no node with another member.
    pub one_per_node: bool,
}

impl Model {
    pub(super) fn apply_set(
        &mut self,
        member: &str,
        one_per_node: bool,
        hibernated: bool,
        plaintext_peers: bool,
    ) -> Result<(), Refused> {
        if let Some(found) = self.api.sets.get(member) {
            free(member, &found.owner, found.terminating)?;
        }
        let template = Template {
            one_per_node,
            ..self.template_now()
        };
        self.templates.insert(member.to_owned(), template);
        let plain_peers = plaintext_peers || !template.peer_tls;
        let new = self.fresh("set");
        let found = self.api.sets.get(member);
        let (uid, created_ms) = match found {
            Some(found) => (found.uid.clone(), found.created_ms),
            None => (new, self.api.now_ms),
        };
        let set = SetFacts {
            uid,
            owner: Owner::Ours,
            terminating: false,
            inputs: Some(self.api.wanted_inputs.clone()),
            plain_peers,
            created_ms,
            hibernated,
            edited: false,
        };
        self.api.sets.insert(member.to_owned(), set);
        Ok(())
    }

    /// Properties of the pods of a StatefulSet that is created from the current resource.
    pub(super) fn template_now(&self) -> Template {
        let server = self.cluster().map(|cluster| &cluster.spec.server);
        Template {
            peer_tls: self.speaks_tls(),
            server: server.map(ServerFacts::of).unwrap_or_default(),
            one_per_node: false,
        }
    }

    pub(super) fn delete_set(&mut self, member: &str, uid: &str) -> Result<(), Refused> {
        let found = self.api.sets.get(member);
        if found.is_some_and(|found| found.uid != uid) {
            return Refused::changed(format!("the set of {member} is another one"));
        }
        self.api.sets.remove(member);
        self.templates.remove(member);
        Ok(())
    }
}
