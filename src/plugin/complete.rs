//! Completion in shells: scripts for the plugin under its own name, and answers to kubectl, which completes `kubectl
//! quorate` by an executable `kubectl_complete-quorate` on the PATH. Reads only names, and is silent where it may not.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Arg, Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::child::{kubectl, run};
use super::{Arguments, Which};

/// The name under which kubectl asks for completions.
pub(super) const COMPLETER: &str = "kubectl_complete-quorate";

/// Prints a script with which a shell completes kubectl-quorate; for `kubectl quorate` see the documentation.
#[derive(Debug, Args)]
pub(super) struct Completion {
    /// The shell.
    shell: Shell,
}

/// What may follow, and whether the shell may propose files instead.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    lines: Vec<String>,
    files: bool,
}

/// Names that only an API server or a kubeconfig knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Clusters,
    Members,
    Stores,
    Backups,
    Namespaces,
    Contexts,
}

/// Values that name files, unless they are one of a few words.
const FILES: [&str; 3] = ["filename", "kubeconfig", "output"];

/// The script of a shell.
pub(super) fn script(asked: &Completion) -> String {
    let mut text = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(asked.shell, &mut command, "kubectl-quorate", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether kubectl asks for completions, by the name of the program.
pub(super) fn is_asked(program: Option<&OsString>) -> bool {
    let program = program.map(Path::new).and_then(Path::file_stem);
    program == Some(OsStr::new(COMPLETER))
}

/// What may follow these words, the last of which is being typed, as kubectl wants to read it.
pub(super) fn response(words: &[OsString]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let answer = answer(&words, &|names| read(names, &words));
    // Cobra's numbers: 4 is "propose no files".
    let directive = if answer.files { ":0" } else { ":4" };
    let lines = answer.lines.into_iter().chain([directive.to_owned()]);
    lines.map(|line| line + "\n").collect()
}

fn answer(words: &[String], names: &dyn Fn(Names) -> Vec<String>) -> Answer {
    let command = Arguments::command();
    let Some((typed, before)) = words.split_last() else {
        return Answer::default();
    };
    let mut answer = match before.split_first() {
        None => of_subcommands(&command),
        Some((name, before)) => match command.find_subcommand(name) {
            Some(subcommand) => of_arguments(subcommand, before, typed, names),
            None => Answer::default(),
        },
    };
    answer.lines.retain(|line| line.starts_with(typed.as_str()));
    answer
}

fn of_subcommands(command: &Command) -> Answer {
    let all = command.get_subcommands();
    let line = |it: &Command| described(it.get_name(), it.get_about());
    Answer {
        lines: all.map(line).collect(),
        files: false,
    }
}

fn of_arguments(
    command: &Command,
    before: &[String],
    typed: &str,
    names: &dyn Fn(Names) -> Vec<String>,
) -> Answer {
    if before.iter().any(|word| word == "--") {
        // Another program's.
        return Answer {
            files: true,
            ..Answer::default()
        };
    }
    if let Some(flag) = before
        .last()
        .and_then(|word| flag_with_value(command, word))
    {
        return values(flag, names);
    }
    if typed.starts_with('-') {
        let flags = command.get_arguments().filter(|arg| !arg.is_positional());
        let line = |arg: &Arg| Some(described(&format!("--{}", arg.get_long()?), arg.get_help()));
        return Answer {
            lines: flags.filter_map(line).collect(),
            files: false,
        };
    }
    let given = given_values(command, before);
    let mut open = command.get_positionals().filter(|arg| !arg.is_last_set());
    open.nth(given)
        .map_or_else(Answer::default, |arg| values(arg, names))
}

/// How many of these words are values without a flag.
fn given_values(command: &Command, words: &[String]) -> usize {
    let mut given = 0;
    let mut is_of_flag = false;
    for word in words {
        given += usize::from(!is_of_flag && !word.starts_with('-'));
        is_of_flag = flag_with_value(command, word).is_some();
    }
    given
}

/// The flag that a word is, if its value is the next word.
fn flag_with_value<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut flags = command.get_arguments().filter(|arg| !arg.is_positional());
    let flag = flags.find(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        [long, short].iter().flatten().any(|name| name == word)
    });
    flag.filter(|arg| arg.get_action().takes_values())
}

fn values(arg: &Arg, names: &dyn Fn(Names) -> Vec<String>) -> Answer {
    let listed = arg.get_possible_values();
    let lines: Vec<String> = match arg.get_id().as_str() {
        _ if !listed.is_empty() => {
            let line = |it: &clap::builder::PossibleValue| described(it.get_name(), it.get_help());
            listed.iter().map(line).collect()
        }
        "name" => names(Names::Clusters),
        "member" => names(Names::Members),
        "store" => names(Names::Stores),
        "backup" => names(Names::Backups),
        "namespace" | "operator_namespace" => names(Names::Namespaces),
        "context" => names(Names::Contexts),
        _ => Vec::new(),
    };
    let files = listed.is_empty() && FILES.contains(&arg.get_id().as_str());
    Answer { lines, files }
}

/// A proposal with the first line of its description.
fn described(name: &str, text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    match text.lines().next() {
        Some(line) if !line.is_empty() => format!("{name}\t{line}"),
        _ => name.to_owned(),
    }
}

/// Names that kubectl lists, in the namespace and context of these words.
fn read(names: Names, words: &[String]) -> Vec<String> {
    let which = Which {
        namespace: value_of(words, &["--namespace", "-n"]),
        context: value_of(words, &["--context"]),
        kubeconfig: value_of(words, &["--kubeconfig"]),
        request_timeout: "3s".to_owned(),
    };
    let verb = if names == Names::Contexts {
        "config"
    } else {
        "get"
    };
    let mut command = kubectl(&which, verb);
    match names {
        Names::Clusters => command.args(["etcdclusters.quorate.dev", "--output=name"]),
        Names::Members => command.args([
            "etcdclusters.quorate.dev",
            "--output=jsonpath={range .items[*].status.members[*]}{.name}{\"\\n\"}{end}",
        ]),
        Names::Stores => command.args(["etcdbackupstores.quorate.dev", "--output=name"]),
        Names::Backups => command.args(["etcdbackups.quorate.dev", "--output=name"]),
        Names::Namespaces => command.args(["namespaces", "--output=name"]),
        Names::Contexts => command.args(["get-contexts", "--output=name"]),
    };
    let printed = run(command, None).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    let bare = |line: &str| match names {
        Names::Contexts => line.to_owned(),
        _ => line.rsplit('/').next().unwrap_or_default().to_owned(),
    };
    printed.lines().map(bare).collect()
}

fn value_of(words: &[String], names: &[&str]) -> Option<String> {
    let at = words.iter().position(|word| names.contains(&word.as_str()));
    let behind = at.and_then(|at| words.get(at + 1)).cloned();
    let inside = || {
        let mut all = words.iter().filter_map(|word| word.split_once('='));
        let (_, value) = all.find(|(name, _)| names.contains(name))?;
        Some(value.to_owned())
    };
    behind.or_else(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proposals without their descriptions, and whether files are proposed.
    fn proposed(words: &[&str]) -> (Vec<String>, bool) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let answer = answer(&words, &|names| vec![format!("{names:?}")]);
        let bare = |line: &String| line.split('\t').next().unwrap_or_default().to_owned();
        (answer.lines.iter().map(bare).collect(), answer.files)
    }

    #[test]
    fn words_are_completed() {
        let none: &[&str] = &[];
        for (words, lines, files) in [
            (&["re"][..], &["restore", "report", "recover"][..], false),
            (&["status", ""], &["Clusters"], false),
            (&["status", "-n", "tenants", ""], &["Clusters"], false),
            (&["status", "--output=json", ""], &["Clusters"], false),
            (&["status", "demo", ""], none, false),
            (&["status", "-o", ""], &["json", "yaml"], false),
            (&["members", "demo", "--output", "w"], &["wide"], false),
            (&["status", "--req"], &["--request-timeout"], false),
            (&["status", "-n", ""], &["Namespaces"], false),
            (&["status", "--context", ""], &["Contexts"], false),
            (&["logs", "demo", "--member", ""], &["Members"], false),
            (&["plan", "-f", ""], none, true),
            (&["report", "-o", ""], none, true),
            (&["restore", ""], &["Backups"], false),
            (&["backup", "demo", "--store", ""], &["Stores"], false),
            (&["fence", ""], &["Clusters"], false),
            (&["fence", "demo", ""], &["Members"], false),
            (&["unfence", "demo", ""], &["Members"], false),
            (&["etcdctl", "demo", ""], none, false),
            (&["etcdctl", "demo", "--", "snapshot", ""], none, true),
            (&["completion", "z"], &["zsh"], false),
            (&["nonsense", ""], none, false),
        ] {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(proposed(words), (lines, files), "{words:?}");
        }
        assert_eq!(answer(&[], &|_| Vec::new()), Answer::default());
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell] {
            let text = script(&Completion { shell });
            assert!(text.contains("kubectl-quorate"), "{shell}");
            assert!(text.contains("etcdctl"), "{shell}");
        }
    }

    #[test]
    fn kubectl_asks_by_the_name_of_the_program() {
        for (program, asked) in [
            ("/usr/bin/kubectl_complete-quorate", true),
            ("kubectl_complete-quorate.exe", true),
            ("kubectl-quorate", false),
        ] {
            assert_eq!(is_asked(Some(&program.into())), asked, "{program}");
        }
    }

    #[test]
    fn namespace_of_the_words_counts() {
        let words = ["status", "-n", "a", "--context=b"].map(str::to_owned);
        let value = |names: &[&str]| value_of(&words, names);
        assert_eq!(value(&["--namespace", "-n"]).as_deref(), Some("a"));
        assert_eq!(value(&["--context"]).as_deref(), Some("b"));
        assert_eq!(value(&["--kubeconfig"]), None);
    }
}
