//! Tables of spellings, and what always holds.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// The list after the changes.
fn changed(args: &[&str], changes: &[ArgChange]) -> Vec<String> {
    let mut list: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    for change in changes {
        if let ArgChange::Replace { at, text } = change {
            list[*at].clone_from(text);
        }
    }
    for (at, text) in insertions(changes) {
        list.insert(at, text.to_owned());
    }
    list
}

/// What becomes of arguments, and how many warnings there are.
fn edited(command: &[&str], args: &[&str], edit: impl Fn(&mut Arguments<'_>)) -> (Vec<String>, usize) {
    let mut arguments = Arguments::new(command, args);
    edit(&mut arguments);
    let (changes, warnings) = arguments.finish();
    println!("{command:?} {args:?} -> {changes:?} {warnings:?}");
    (changed(args, &changes), warnings.len())
}

fn one_stage(arguments: &mut Arguments<'_>) {
    arguments.force(&PIPELINE_PARALLEL_SIZE, "1");
}

fn full_decode(arguments: &mut Arguments<'_>) {
    arguments.merge(&COMPILATION_CONFIG, "cudagraph_mode", "FULL_DECODE_ONLY");
}

fn eager(arguments: &mut Arguments<'_>) {
    arguments.switch_on(&ENFORCE_EAGER, &NO_ENFORCE_EAGER);
}

#[rstest]
#[case::absent(&["m1"], &["m1", "--pipeline-parallel-size", "1"], 0)]
#[case::no_arguments(&[], &["--pipeline-parallel-size", "1"], 0)]
#[case::next_token(&["--pipeline-parallel-size", "4", "m1"], &["--pipeline-parallel-size", "1", "m1"], 1)]
#[case::joined(&["m1", "--pipeline-parallel-size=4"], &["m1", "--pipeline-parallel-size=1"], 1)]
#[case::underscores(&["--pipeline_parallel_size", "4"], &["--pipeline_parallel_size", "1"], 1)]
#[case::mixed_joined(&["--pipeline_parallel-size=4"], &["--pipeline_parallel-size=1"], 1)]
#[case::alias(&["-pp", "4"], &["-pp", "1"], 1)]
#[case::alias_joined(&["-pp=4"], &["-pp=1"], 1)]
#[case::same_value(&["-pp", "1"], &["-pp", "1"], 0)]
#[case::last_counts(
    &["--pipeline-parallel-size", "1", "m1", "-pp", "4"], &["--pipeline-parallel-size", "1", "m1", "-pp", "1"], 1)]
#[case::last_is_right(&["-pp", "4", "--pipeline-parallel-size=1"], &["-pp", "4", "--pipeline-parallel-size=1"], 0)]
#[case::last_token(&["m1", "-pp"], &["m1", "-pp", "1"], 0)]
#[case::flag_follows(&["-pp", "--port", "8000"], &["-pp", "1", "--port", "8000"], 0)]
#[case::joined_empty(&["-pp="], &["-pp=1"], 1)]
#[case::longer_name(&["--pipeline-parallel-size-x", "4"], &["--pipeline-parallel-size-x", "4", "--pipeline-parallel-size", "1"], 0)]
#[case::underscores_in_front(&["__pipeline_parallel_size"], &["__pipeline_parallel_size", "--pipeline-parallel-size", "1"], 0)]
#[case::with_blanks(&["--pipeline-parallel-size 4"], &["--pipeline-parallel-size 4", "--pipeline-parallel-size", "1"], 0)]
#[case::end_of_flags(&["m1", "--", "-pp", "4"], &["m1", "--pipeline-parallel-size", "1", "--", "-pp", "4"], 0)]
#[case::negative_value(&["-pp", "-1"], &["-pp", "1"], 1)]
fn a_value_is_forced_where_it_counts(#[case] args: &[&str], #[case] expected: &[&str], #[case] warnings: usize) {
    assert_eq!(edited(&[], args, one_stage), (expected.iter().map(ToString::to_string).collect(), warnings));
}

#[rstest]
#[case::in_the_command(&["vllm", "serve", "-pp", "4"], &["m1"], &["m1", "--pipeline-parallel-size", "1"], 1)]
#[case::right_in_the_command(&["vllm", "serve", "-pp=1"], &["m1"], &["m1"], 0)]
#[case::across(&["vllm", "serve", "-pp"], &["4", "m1"], &["1", "m1"], 1)]
#[case::value_missing_across(&["vllm", "serve", "-pp"], &["--port", "1"], &["1", "--port", "1"], 0)]
fn flags_in_the_command_count_too(
    #[case] command: &[&str],
    #[case] args: &[&str],
    #[case] expected: &[&str],
    #[case] warnings: usize,
) {
    assert_eq!(edited(command, args, one_stage), (expected.iter().map(ToString::to_string).collect(), warnings));
}

#[rstest]
#[case::absent(&["m1"], &["m1", "--enforce-eager"], 0)]
#[case::there(&["--enforce-eager", "m1"], &["--enforce-eager", "m1"], 0)]
#[case::underscores(&["--enforce_eager"], &["--enforce_eager"], 0)]
#[case::joined(&["--enforce-eager=true"], &["--enforce-eager=true"], 0)]
#[case::opposite(&["--no-enforce-eager"], &["--no-enforce-eager", "--enforce-eager"], 1)]
#[case::opposite_first(&["--no-enforce-eager", "--enforce-eager"], &["--no-enforce-eager", "--enforce-eager"], 0)]
#[case::opposite_last(
    &["--enforce-eager", "--no-enforce-eager"], &["--enforce-eager", "--no-enforce-eager", "--enforce-eager"], 1)]
fn a_switch_is_on_in_the_end(#[case] args: &[&str], #[case] expected: &[&str], #[case] warnings: usize) {
    assert_eq!(edited(&[], args, eager), (expected.iter().map(ToString::to_string).collect(), warnings));
}

const OURS: &str = r#"{"cudagraph_mode":"FULL_DECODE_ONLY"}"#;

#[rstest]
#[case::absent(&["m1"], &["m1", "--compilation-config", OURS], 0)]
#[case::merged(
    &["--compilation-config", r#"{"mode": 3, "a": {"b": [1]}}"#],
    &["--compilation-config", r#"{"a":{"b":[1]},"cudagraph_mode":"FULL_DECODE_ONLY","mode":3}"#], 0)]
#[case::joined(&[r#"--compilation_config={"mode":3}"#], &[r#"--compilation_config={"cudagraph_mode":"FULL_DECODE_ONLY","mode":3}"#], 0)]
#[case::alias(&["-cc", r#"{"mode":3}"#], &["-cc", r#"{"cudagraph_mode":"FULL_DECODE_ONLY","mode":3}"#], 0)]
#[case::old_alias(&["-O", r#"{"level":3}"#], &["-O", r#"{"cudagraph_mode":"FULL_DECODE_ONLY","level":3}"#], 0)]
#[case::optimisation_level(&["-O", "3"], &["-O", "3", "--compilation-config", OURS], 0)]
#[case::optimisation_level_joined(&["-O3"], &["-O3", "--compilation-config", OURS], 0)]
#[case::other_mode(&["-cc", r#"{"cudagraph_mode":"FULL"}"#], &["-cc", OURS], 1)]
#[case::same_mode(&["-cc", r#"{ "cudagraph_mode": "FULL_DECODE_ONLY" }"#], &["-cc", r#"{ "cudagraph_mode": "FULL_DECODE_ONLY" }"#], 0)]
#[case::no_json(&["--compilation-config", "3"], &["--compilation-config", OURS], 1)]
#[case::no_value(&["--compilation-config", "--port"], &["--compilation-config", OURS, "--port"], 0)]
#[case::last_counts(&["-cc", r#"{"a":1}"#, "-cc={}"], &["-cc", r#"{"a":1}"#, &format!("-cc={OURS}")], 0)]
#[case::dotted(&["-cc.mode", "3"], &["-cc.mode", "3", "-cc.cudagraph_mode=FULL_DECODE_ONLY"], 0)]
#[case::dotted_beside_json(
    &["--compilation-config.mode=3", "-cc", "{}"],
    &["--compilation-config.mode=3", "-cc", "{}", "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY"], 0)]
#[case::dotted_other(
    &["-cc.cudagraph_mode=FULL"], &["-cc.cudagraph_mode=FULL", "-cc.cudagraph_mode=FULL_DECODE_ONLY"], 1)]
#[case::dotted_same(&["-cc.cudagraph_mode", "FULL_DECODE_ONLY"], &["-cc.cudagraph_mode", "FULL_DECODE_ONLY"], 0)]
#[case::two_spellings_dotted(
    &["-cc.a=1", "--compilation-config.b=2", "-cc.c=3"],
    &["-cc.a=1", "--compilation-config.b=2", "-cc.c=3", "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY"], 0)]
fn a_users_json_is_kept_and_ours_is_in_it(#[case] args: &[&str], #[case] expected: &[&str], #[case] warnings: usize) {
    assert_eq!(edited(&[], args, full_decode), (expected.iter().map(ToString::to_string).collect(), warnings));
}

#[rstest]
#[case(&["--kv-transfer-config", "{}"], true)]
#[case(&["--kv_transfer_config={}"], true)]
#[case(&["--kv-transfer-config.kv_role=kv_both"], true)]
#[case(&["--kv-transfer-config"], true)]
#[case(&["--kv-transfer", "{}"], false)]
#[case(&["--kv-transfer-configs={}"], false)]
#[case(&["--model", "kv-transfer-config"], false)]
#[case(&["--", "--kv-transfer-config", "{}"], false)]
#[case(&[], false)]
fn a_connector_is_found_in_every_spelling(#[case] args: &[&str], #[case] expected: bool) {
    assert_eq!(Arguments::new(&["vllm", "serve"], args).has(&KV_TRANSFER_CONFIG), expected, "{args:?}");
    if expected {
        assert!(Arguments::new(args, &[]).has(&KV_TRANSFER_CONFIG), "{args:?} in the command");
    }
}

#[test]
fn a_value_that_is_missing_goes_before_what_is_appended() {
    let edit = |arguments: &mut Arguments<'_>| {
        arguments.append(&["--first", "x"]);
        arguments.force(&PIPELINE_PARALLEL_SIZE, "1");
        arguments.append(&["--second"]);
    };
    assert_eq!(edited(&[], &["m1", "-pp"], edit).0, ["m1", "-pp", "1", "--first", "x", "--second"]);
}

fn token() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "-pp",
        "-pp=2",
        "--pipeline-parallel-size",
        "--pipeline_parallel_size=3",
        "1",
        "4",
        "-1",
        "--",
        "-",
        "",
        "--enforce-eager",
        "--no_enforce_eager",
        "--enforce-eager=x",
        "-cc",
        "-O",
        "-O3",
        "{}",
        r#"{"mode":3}"#,
        "--compilation-config",
        r#"--compilation_config={"cudagraph_mode":"FULL"}"#,
        "-cc.mode=3",
        "-cc.cudagraph_mode",
        "--kv-transfer-config",
        "=",
        "-=",
        "--=",
        "--.",
        "--a.b.c=d",
        "--port",
        "8000",
        "é",
        "-é=",
    ];
    prop_oneof![4 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => prop::string::string_regex(".{0,12}").unwrap()]
}

fn tokens() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(token(), 0..10)
}

/// All edits of the injector that makes the most of them.
fn all(arguments: &mut Arguments<'_>) {
    if !arguments.has(&KV_TRANSFER_CONFIG) {
        arguments.append(&[KV_TRANSFER_CONFIG.name, "{}"]);
    }
    one_stage(arguments);
    eager(arguments);
    full_decode(arguments);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_say_what_counts_once_and_keep_the_users_order(command in tokens(), args in tokens()) {
        // A command that ends its flags itself is never edited.
        let command: Vec<&str> = command.iter().map(String::as_str).filter(|token| *token != "--").collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut arguments = Arguments::new(&command, &args);
        all(&mut arguments);
        let (changes, _) = arguments.finish();
        let result = changed(&args, &changes);

        // What was not replaced is still there, in its order.
        let replaced = |at: usize| changes.iter().any(|it| matches!(it, ArgChange::Replace { at: place, .. } if *place == at));
        let mut rest = result.iter();
        for (at, arg) in args.iter().enumerate().filter(|(at, _)| !replaced(*at)) {
            prop_assert!(rest.any(|it| it == arg), "{arg:?} at {at} is gone or moved: {args:?} -> {result:?}");
        }

        // What counts is what was asked for.
        let result: Vec<&str> = result.iter().map(String::as_str).collect();
        let line = Line::new(&command, &result);
        let stages = line.occurrences(&PIPELINE_PARALLEL_SIZE).rfind(|it| !it.is_dotted());
        prop_assert_eq!(stages.and_then(|it| it.value).map(str::trim), Some("1"), "{:?}", &result);
        let eager = line.occurrences(&ENFORCE_EAGER).next_back().map(|it| it.at);
        let not_eager = line.occurrences(&NO_ENFORCE_EAGER).next_back().map(|it| it.at);
        prop_assert!(eager > not_eager, "{result:?}");
        prop_assert!(line.occurrences(&KV_TRANSFER_CONFIG).next().is_some(), "{result:?}");

        // A second run finds nothing to do.
        let mut again = Arguments::new(&command, &result);
        all(&mut again);
        let (changes, _) = again.finish();
        prop_assert!(changes.is_empty(), "{result:?} -> {changes:?}");
    }
}
