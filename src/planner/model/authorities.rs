//! The Secret of a port's CA: it is created, and rotated in stages.

use super::{Model, Refused};
use crate::crd::TlsPort;
use crate::plan::Rotation;

impl Model {
    pub(super) fn make_authority(&mut self, port: TlsPort, secret: &str) -> Result<(), Refused> {
        if self.api.tls.secrets.contains_key(secret) {
            return Refused::changed(format!("{secret} exists"));
        }
        let days = self.pace.days.1;
        let certificate = self.certificate(days, None);
        // Members with certificates of an earlier CA stay trusted.
        let mut trusted = vec![certificate.fingerprint.clone()];
        let suffix = format!("-{}-tls", port.as_str());
        let leaves = self.api.tls.secrets.iter();
        let leaves = leaves.filter(|(name, _)| name.ends_with(&suffix));
        for one in leaves.flat_map(|(_, leaf)| &leaf.trusted) {
            if !trusted.contains(one) {
                trusted.push(one.clone());
            }
        }
        let mut facts = self.new_secret((port, None), certificate, trusted);
        // The inputs of what it signs, not of the CA itself.
        facts.inputs = None;
        self.write_secret(secret, facts);
        Ok(())
    }

    pub(super) fn rotate_authority(
        &mut self,
        secret: &str,
        signs: &str,
        stage: &Rotation,
    ) -> Result<(), Refused> {
        let mut facts = self.secret(secret)?;
        let signer = facts.certificate.as_ref();
        if signer.is_none_or(|signer| signer.fingerprint != signs) {
            return Refused::changed("another authority signs");
        }
        match stage {
            Rotation::Prepare { asked } => {
                if facts.next.is_some() {
                    return Refused::changed("the next authority is there already");
                }
                let days = self.pace.days.1;
                let next = self.certificate(days, None);
                let second = 1.min(facts.trusted.len());
                facts.trusted.insert(second, next.fingerprint.clone());
                facts.next = Some(next);
                facts.rotated_for.clone_from(asked);
            }
            Rotation::Switch { to } => {
                if facts
                    .next
                    .as_ref()
                    .is_none_or(|next| next.fingerprint != *to)
                {
                    return Refused::changed("the next authority is another one");
                }
                facts.certificate = facts.next.take();
                facts.trusted.retain(|one| one != to);
                facts.trusted.insert(0, to.clone());
            }
            Rotation::Forget => facts.trusted.truncate(1),
        }
        self.write_secret(secret, facts);
        Ok(())
    }
}
