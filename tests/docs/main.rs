//! Checks the fenced blocks of the pages for users, by their language, against what the programs accept; blocks of
//! output are exempt. A block marked `sh run` is also run. Prose is not checked.

mod alerts;
mod blocks;
mod commands;
mod helps;
mod programs;
mod ran;
mod reasons;
mod resources;
mod run;
mod versions;

use std::path::Path;

use blocks::{Block, Language};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The problems of a block; empty if it is correct.
fn problems(block: &Block) -> Vec<String> {
    match &block.language {
        Language::Yaml => resources::problems(&block.text),
        Language::Shell | Language::Run => commands::problems(&block.text),
        Language::Output => Vec::new(),
        Language::Program(language) => programs::problems(language, &block.text),
        Language::Other(name) => vec![format!(
            "a block is yaml, sh, `sh run`, output (text, console) or of a tested program (go, rust, python, js, \
             java), and not {name:?}"
        )],
    }
}

#[test]
fn blocks_of_user_pages_are_right() {
    let all = blocks::of_user_pages();
    let checked = all
        .iter()
        .filter(|block| block.language != Language::Output);
    let count = checked.clone().count();
    assert!(count >= 40, "only {count} blocks were found");
    let mut wrong = Vec::new();
    for block in checked {
        for problem in problems(block) {
            wrong.push(format!("{}:{}: {problem}", block.page, block.line));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn marked_blocks_run_successfully() {
    let mut ran = 0;
    for block in blocks::of_user_pages() {
        if block.language == Language::Run {
            ran += 1;
            if let Err(why) = run::run(&block.text) {
                panic!("{}:{}: {why}", block.page, block.line);
            }
        }
    }
    assert!(ran >= 2, "only {ran} blocks were run");
}

/// Each kind of mistake is detected, and the corrected block passes.
#[test]
fn wrong_blocks_are_found() {
    let cluster =
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: demo}\nspec: ";
    let whole = |spec: &str| format!("{cluster}{spec}\n");
    for (language, right, wrong, words) in [
        ("yaml", whole("{replicas: 3}"), whole("{replicas: 12}"), "replicas must be 0"),
        ("yaml", whole("{paused: true}"), whole("{pause: true}"), "unknown field"),
        (
            "yaml",
            whole("{server: {extraArgs: [{name: max-request-bytes, value: '3145728'}]}}"),
            whole("{server: {extraArgs: [{name: max-request-byte, value: '3145728'}]}}"),
            "max-request-byte",
        ),
        ("yaml", "tls: {}\n".to_owned(), "tsl: {}\n".to_owned(), "unknown field"),
        (
            "yaml",
            "networkPolicy: {clients: [{ipBlock: {cidr: 10.0.0.0/8}}]}\n".to_owned(),
            "networkPolicy: {clients: [{ipBlock: {cidr: 10.0.0.0/88}}]}\n".to_owned(),
            "10.0.0.0/88",
        ),
        (
            "yaml",
            "apiVersion: cert-manager.io/v1\nkind: Certificate\n".to_owned(),
            "apiVersion: cert-manager.io/v1\nkind: Certificat\n".to_owned(),
            "is not known here",
        ),
        (
            "yaml",
            "apiVersion: kamaji.clastix.io/v1alpha1\nkind: DataStore\nspec: {endpoints: ['a-client-0.b.svc:2379']}\n"
                .to_owned(),
            "apiVersion: kamaji.clastix.io/v1alpha1\nkind: DataStore\nspec: {endpoints: ['a-slot-0.b.svc:2379']}\n"
                .to_owned(),
            "is no Service of a cluster",
        ),
        (
            "go",
            "if err != nil {\n\treturn nil, err\n}\n".to_owned(),
            "if err != nil {\n\treturn err, nil\n}\n".to_owned(),
            "has not these lines",
        ),
        ("sh", "quorate server --name a".into(), "quorate server --nam a".into(), "--nam"),
        ("sh", "quorate witness --seconds=1".into(), "quorate witnes".into(), "witnes"),
        (
            "sh",
            "kubectl quorate plan -f demo.yaml".into(),
            "kubectl quorate plan --file demo.yaml".into(),
            "--file",
        ),
        (
            "sh",
            "kubectl quorate etcdctl demo -- get key --prefix".into(),
            "kubectl quorate etcdctl demo -- gett key --prefix".into(),
            "gett",
        ),
        (
            "sh",
            "kubectl exec demo-1-0 -- /quorate describe --changes".into(),
            "kubectl exec demo-1-0 -- /quorate describe --change".into(),
            "--change",
        ),
        ("sh", "make sim SEEDS=1".into(), "make simulate".into(), "no target simulate"),
        ("sh", "make sim SEEDS=1".into(), "make sim SEED_COUNT=1".into(), "SEED_COUNT"),
        (
            "sh",
            "helm install q charts/quorate --set image.tag=1".into(),
            "helm install q charts/quorate --set image.tagg=1".into(),
            "image.tagg",
        ),
        (
            "sh",
            "kubectl apply -f deploy/install.yaml".into(),
            "kubectl apply -f deploy/instal.yaml".into(),
            "there is no deploy/instal.yaml",
        ),
        (
            "sh",
            "kubectl explain etcdcluster.spec.storage.size".into(),
            "kubectl explain etcdcluster.spec.storage.sizes".into(),
            "sizes",
        ),
        (
            "sh",
            r#"kubectl patch qec demo --type merge -p '{"spec": {"paused": true}}'"#.into(),
            r#"kubectl patch qec demo --type merge -p '{"spec": {"paused": 1}}'"#.into(),
            "expected boolean",
        ),
        ("sh", "kubectl scale qec demo --replicas=5".into(), "kubectl scale qec demo --replicas=10".into(), "replicas"),
        (
            "sh",
            "kubectl annotate qec demo quorate.dev/rotate-peer-ca=1".into(),
            "kubectl annotate qec demo quorate.dev/rotate-peer=1".into(),
            "rotate-peer",
        ),
        ("sh", "etcdctl alarm disarm".into(), "etcdctl alarm clear".into(), "alarm clear"),
        (
            "sh",
            "etcdctl compact \"$(etcdctl endpoint status -w json | jq .)\"".into(),
            "etcdctl compact \"$(etcdctl endpoint stat -w json | jq .)\"".into(),
            "endpoint stat",
        ),
        ("sh", "curl -s localhost".into(), "kubctl get pods".into(), "kubctl"),
        ("text", "anything".into(), String::new(), ""),
        ("", String::new(), "anything".into(), "a block is yaml"),
    ] {
        let found = |text: &str| problems(&Block::new(language, text)).join("; ");
        if !right.is_empty() {
            assert_eq!(found(&right), "", "{right}");
        }
        if !wrong.is_empty() {
            let output = found(&wrong);
            assert!(output.contains(words), "{wrong}: {output:?} lacks {words:?}");
        }
    }
}

#[test]
fn a_block_that_fails_is_found() {
    let fails = |text: &str| run::run(text).expect_err(text);
    assert!(fails("quorate certs --out here --membr a=b").contains("--membr"));
    assert!(fails("false\ntrue").contains("exit status: 1"));
    run::run("quorate version\ntest $PWD != /").expect("it runs");
}
