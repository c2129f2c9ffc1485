//! Two operators, one Lease.

use std::time::{Duration, Instant};

use lmcache_harness::Harness;

use crate::common::{Bed, Operator, engine, project};
use crate::{PATIENCE, bed, ended, spec, suite};

const WORKS: &str = "Started the controllers";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_works_and_the_other_takes_over() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "leader").await;
    let role = std::fs::read_to_string(project().join("deploy/base/leader_election_role.yaml")).unwrap();
    let here = role.replace("namespace: system", &format!("namespace: {}", suite.namespace()));
    bed.cluster.grant_operator(&here).await.unwrap();

    let mut first = claimant(bed, &suite, "first");
    first.wait_for_log(WORKS).await.unwrap();
    let second = claimant(bed, &suite, "second");
    second.wait_for_log("Attempting to acquire leader lease").await.unwrap();
    suite.apply_fixture(&engine("one", &spec(1))).await.unwrap();
    suite.wait_ready("one").await.unwrap();
    assert!(!second.program.log().contains(WORKS), "both work:\n{}", second.program.log());

    // A leader that dies is followed when its Lease has run out.
    first.program.kill();
    let killed = Instant::now();
    suite.apply_fixture(&engine("two", &spec(2))).await.unwrap();
    suite.wait_ready("two").await.unwrap();
    println!("after SIGKILL the other was done after {:?}", killed.elapsed());
    assert!(second.program.log().contains(WORKS), "nobody works:\n{}", second.program.log());
    assert!(killed.elapsed() < Duration::from_secs(40), "it took {:?}", killed.elapsed());

    // One that stops releases it, and nobody waits for it to run out.
    let (mut second, third) = (second, claimant(bed, &suite, "third"));
    third.wait_for_log("Attempting to acquire leader lease").await.unwrap();
    second.program.terminate();
    let (code, _) = ended(&mut second, Duration::from_secs(12)).await.unwrap();
    let released = Instant::now();
    assert_eq!(code, Some(0), "{}", second.program.log());
    assert!(second.program.log().contains("Released leader lease"), "{}", second.program.log());
    third.wait_for_log(WORKS).await.unwrap();
    println!("after SIGTERM the other worked after {:?}", released.elapsed());
    assert!(released.elapsed() < Duration::from_secs(6), "it took {:?}\n{}", released.elapsed(), third.program.log());
    suite.apply_fixture(&engine("three", &spec(3))).await.unwrap();
    suite.with_timeout(PATIENCE).wait_ready("three").await.unwrap();
    suite.finish().await.unwrap();
}

fn claimant(bed: &Bed, suite: &Harness, name: &str) -> Operator {
    let namespace = suite.namespace();
    let flags = [
        "--leader-elect".to_owned(),
        format!("--leader-election-namespace={namespace}"),
        format!("--watch-namespaces={namespace}"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let log = format!("{namespace}-{name}");
    Operator::start(bed.cluster.state_dir(), &log, &bed.cluster.operator_kubeconfig_path(), &flags).unwrap()
}
