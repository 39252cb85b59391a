//! No message of the operator advises anything that would cost data. A deleted Secret once led to the advice to delete
//! the resource and create it again: the data was intact until the user did.

use std::path::{Path, PathBuf};

/// Words of such advice, in any text of these rooms.
const NEVER: [&str; 9] = [
    "delete this resource",
    "delete the resource",
    "delete the cluster",
    "delete the secret",
    "delete its pvc",
    "delete the pvc",
    "delete the volume",
    "or remove it",
    "begin anew",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("_test.rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_text_advises_what_would_cost_data() {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("src");
    let mut all = Vec::new();
    for room in ["planner/plan", "planner/model", "planner/crd", "operator"] {
        files(&source.join(room), &mut all);
    }
    assert!(all.len() > 60, "{} files", all.len());
    for path in all {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let spoken = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in spoken {
            let line = line.to_lowercase();
            let advice = NEVER.iter().find(|words| line.contains(*words));
            assert_eq!(advice, None, "{}: {line}", path.display());
        }
    }
}
