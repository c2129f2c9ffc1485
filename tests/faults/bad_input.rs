//! Wrong flags, unusable kubeconfigs, addresses in use: said plainly, and the process ends.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lmcache_testbed::Program;
use rstest::rstest;

use crate::common::Operator;
use crate::{bed, ended, write};

#[rstest]
#[case::typo("typo", &["--leader-elct"], "similar argument exists: '--leader-elect'")]
#[case::reference_spelling("dash", &["-metrics-bind-adress=:8443"], "'--metrics-bind-address'")]
#[case::boolean("boolean", &["--leader-elect=maybe"], "want true or false")]
#[case::address("address", &["--metrics-bind-address=8443"], "want [host]:port")]
#[case::namespace("namespace", &["--watch-namespaces=Team_B"], "\"Team_B\" is no name of a namespace")]
#[case::argument("argument", &["start"], "unexpected argument 'start'")]
#[tokio::test]
async fn a_wrong_flag_is_refused_with_a_hint(#[case] name: &str, #[case] flags: &[&str], #[case] hint: &str) {
    let (code, text) = run(name, &[], flags).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains(hint), "want {hint:?} in\n{text}");
    assert_plain(&text);
}

#[rstest]
#[case::level("level", &["--log-level=lmcache=loud"], "invalid log filter")]
#[tokio::test]
async fn a_log_filter_that_means_nothing_is_refused(#[case] name: &str, #[case] flags: &[&str], #[case] hint: &str) {
    let (code, text) = run(name, &[], flags).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(hint), "want {hint:?} in\n{text}");
    assert_plain(&text);
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_read_is_named() {
    let (missing, garbage, empty) = (file("missing"), file("garbage.yaml"), file("empty.yaml"));
    write(&garbage, "apiVersion: v1\nclusters: {this is: [not a kubeconfig\n").unwrap();
    write(&empty, "").unwrap();
    for (name, path) in [("missing", &missing), ("garbage", &garbage), ("empty", &empty)] {
        let path = path.display().to_string();
        let by_flag = run(&format!("flag-{name}"), &[], &[&format!("--kubeconfig={path}")]).await;
        let by_environment = run(&format!("env-{name}"), &[&format!("KUBECONFIG={path}")], &[]).await;
        for (way, (code, text)) in [("--kubeconfig", by_flag), ("KUBECONFIG", by_environment)] {
            println!("{way}, {name}: {}", text.lines().last().unwrap_or_default());
            assert_eq!(code, Some(1), "{way} with a file that is {name}: {text}");
            assert!(text.to_lowercase().contains("kubeconfig"), "{way} with a file that is {name}: {text}");
            assert!(name == "empty" || text.contains(&path), "{way} with a file that is {name} is not named: {text}");
            assert_plain(&text);
        }
    }
    for path in [garbage, empty] {
        std::fs::remove_file(path).unwrap();
    }
}

#[rstest]
#[case("--metrics-bind-address")]
#[case("--health-probe-bind-address")]
#[tokio::test]
async fn an_address_in_use_is_named(#[case] flag: &str) {
    let bed = bed().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flags = [format!("{flag}={address}")];
    let log = format!("taken{flag}");
    let kubeconfig = bed.cluster.operator_kubeconfig_path();
    let mut operator = Operator::start(bed.cluster.state_dir(), &log, &kubeconfig, &[&flags[0]]).unwrap();
    let (code, _) = ended(&mut operator, Duration::from_secs(10)).await.unwrap();
    let text = operator.program.log();
    assert_eq!(code, Some(1), "{text}");
    for part in [address.as_str(), flag, "in use", "choose another address, or 0 to switch it off"] {
        assert!(text.contains(part), "want {part:?} in\n{text}");
    }
    assert_plain(&text);
}

/// No panic, no Debug text, and not a page of it.
fn assert_plain(text: &str) {
    for part in ["panicked", "RUST_BACKTRACE", "Some(", "Err("] {
        assert!(!text.contains(part), "{part:?} is in\n{text}");
    }
    assert!(text.lines().count() <= 12, "{text}");
}

/// Runs the binary with nothing but this environment until it ends; code and everything it wrote.
async fn run(name: &str, environment: &[&str], flags: &[&str]) -> (Option<i32>, String) {
    let log = file(name);
    let mut args = vec!["-i".to_owned()];
    args.extend(environment.iter().map(|it| (*it).to_owned()));
    args.push(env!("CARGO_BIN_EXE_manager").to_owned());
    args.extend(["--health-probe-bind-address=127.0.0.1:0".to_owned()]);
    args.extend(flags.iter().map(|it| (*it).to_owned()));
    let program = Program::start("manager", Path::new("env"), &args, log.clone()).unwrap();
    let mut operator = Operator { program };
    let (code, _) = ended(&mut operator, Duration::from_secs(10)).await.unwrap();
    let text = operator.program.log();
    std::fs::remove_file(log).unwrap();
    (code, text)
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{}-{name}", std::process::id()))
}
