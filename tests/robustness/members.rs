//! Changes of members: lost disks, replaced machines, rolling restarts, leadership transfers; all with the API calls
//! that administrators use.

use std::time::{Duration, Instant};

use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{
    Member, MemberAddRequest, MemberPromoteRequest, MemberRemoveRequest, MoveLeaderRequest,
};
use tokio::time::sleep;

use crate::nemesis::{Broken, Cluster};
use crate::server::{PATIENCE, Server};

impl Cluster {
    /// A member loses its disk: it is removed, and a new member replaces it.
    pub(crate) async fn lose_disk(&mut self, target: usize, lasts: Duration) -> Result<(), Broken> {
        let mut server = self.servers.remove(target);
        self.publish();
        server.kill();
        let gone = std::fs::remove_dir_all(server.data());
        gone.map_err(|error| format!("cannot lose {}: {error}", server.data().display()))?;
        sleep(lasts).await;
        self.remove(&server.peer_url()).await?;
        self.join(server).await?;
        self.counts.add("disks lost", 1);
        Ok(())
    }

    /// Adds a new member on a new machine, and then removes the old one.
    pub(crate) async fn replace(&mut self, target: usize) -> Result<(), Broken> {
        let fresh = self.another().await;
        self.join(fresh).await?;
        let mut old = self.servers.remove(target);
        self.publish();
        self.remove(&old.peer_url()).await?;
        match old.ended(PATIENCE).await {
            Some(status) if status.success() => {}
            ended => {
                let words = old.last_words();
                return Err(format!(
                    "{} was removed and ended {ended:?}\n{words}",
                    old.name
                ));
            }
        }
        self.counts.add("members replaced", 1);
        Ok(())
    }

    /// Polls the members until one returns a result.
    async fn eventually<T>(
        &self,
        what: &str,
        mut ask: impl AsyncFnMut(&Server) -> Option<T>,
    ) -> Result<T, Broken> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            for server in &self.servers {
                if let Some(answer) = ask(server).await {
                    return Ok(answer);
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(format!("timed out waiting until {what}"))
    }

    async fn remove(&self, peer_url: &str) -> Result<(), Broken> {
        self.eventually("it is removed", async |server| {
            let members = server.members().await?;
            let Some(member) = find(&members, peer_url) else {
                return Some(());
            };
            let request = MemberRemoveRequest { id: member.id };
            let _ = ClusterClient::new(server.channel())
                .member_remove(request)
                .await;
            None
        })
        .await
    }

    async fn join(&mut self, mut server: Server) -> Result<(), Broken> {
        let url = server.peer_url();
        let members = self
            .eventually("it is added", async |asked| {
                let members = asked.members().await?;
                if find(&members, &url).is_some() {
                    return Some(members);
                }
                let request = MemberAddRequest {
                    peer_ur_ls: vec![url.clone()],
                    is_learner: true,
                };
                let _ = ClusterClient::new(asked.channel())
                    .member_add(request)
                    .await;
                None
            })
            .await?;
        let known = members.iter().flat_map(|member| {
            let name = if member.peer_ur_ls.contains(&url) {
                &server.name
            } else {
                &member.name
            };
            member
                .peer_ur_ls
                .iter()
                .map(move |url| format!("{name}={url}"))
        });
        let known: Vec<String> = known.collect();
        server.membership = vec![
            format!("--initial-cluster={}", known.join(",")),
            "--initial-cluster-state=existing".to_owned(),
        ];
        server.start();
        let promoted = self.eventually("it is promoted", async |asked| {
            let members = asked.members().await?;
            let member = find(&members, &url)?;
            if !member.is_learner {
                return Some(());
            }
            let request = MemberPromoteRequest { id: member.id };
            let _ = ClusterClient::new(asked.channel())
                .member_promote(request)
                .await;
            None
        });
        let promoted = promoted.await;
        promoted.map_err(|text| format!("{text}:\n{}", server.last_words()))?;
        self.servers.push(server);
        self.publish();
        self.counts.add("members joined", 1);
        Ok(())
    }

    /// Stops and restarts all members, one at a time.
    pub(crate) async fn restart_all(&mut self) -> Result<(), Broken> {
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            server.signal("TERM");
            match server.ended(PATIENCE).await {
                Some(status) if status.success() => server.start(),
                ended => {
                    let words = server.last_words();
                    return Err(format!(
                        "{} was asked to stop: {ended:?}\n{words}",
                        server.name
                    ));
                }
            }
            self.settle("a restart").await?;
        }
        Ok(())
    }

    pub(crate) async fn move_leader(&self, from: usize, to: usize) -> Result<(), Broken> {
        let begun = Instant::now();
        let (mut from, mut to) = (from, to);
        while begun.elapsed() < PATIENCE {
            let target = self.servers[to].status().await;
            let target = target
                .and_then(|status| status.header)
                .map(|header| header.member_id);
            if let Some(target_id) = target {
                let request = MoveLeaderRequest { target_id };
                let mut asked = MaintenanceClient::new(self.servers[from].channel());
                if asked.move_leader(request).await.is_ok() {
                    return Ok(());
                }
            }
            sleep(Duration::from_millis(100)).await;
            from = self.leader(from).await;
            to = (from + 1) % self.servers.len();
        }
        Err("the leader could not be moved".to_owned())
    }
}

fn find<'a>(members: &'a [Member], peer_url: &str) -> Option<&'a Member> {
    let mut members = members.iter();
    members.find(|member| member.peer_ur_ls.iter().any(|url| url == peer_url))
}
