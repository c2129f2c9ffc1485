//! Whether a container's command passes appended arguments on to vLLM (D44).

/// Whether arguments that are appended to `args` reach vLLM: with the image's entrypoint, `vllm serve`, and
/// `python -m vllm.entrypoints...`. A shell, a wrapper, or anything unknown may drop them.
pub(super) fn takes_arguments(command: &[&str], args: &[&str]) -> bool {
    let Some(program) = command.first() else { return true };
    // Nothing after a lone `--` is read as a flag.
    if command.contains(&"--") {
        return false;
    }
    let program = program.rsplit('/').next().unwrap_or_default();
    let mut rest = command[1..].iter().chain(args).copied();
    if program == "vllm" {
        return rest.next() == Some("serve");
    }
    is_python(program) && rest.next() == Some("-m") && rest.next().is_some_and(is_server)
}

/// `python`, `python3`, `python3.12`.
fn is_python(program: &str) -> bool {
    let version = program.strip_prefix("python");
    version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

fn is_server(module: &str) -> bool {
    module.strip_prefix("vllm.entrypoints").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&[], &["m1"], true)]
    #[case(&["vllm", "serve"], &["m1"], true)]
    #[case(&["vllm", "serve", "m1", "--port", "8000"], &[], true)]
    #[case(&["/usr/local/bin/vllm", "serve"], &[], true)]
    #[case(&["vllm"], &["serve", "m1"], true)]
    #[case(&["python", "-m", "vllm.entrypoints.openai.api_server"], &[], true)]
    #[case(&["python3", "-m", "vllm.entrypoints.openai.api_server"], &["--model", "m1"], true)]
    #[case(&["/opt/venv/bin/python3.12", "-m", "vllm.entrypoints.cli.main", "serve"], &[], true)]
    #[case(&["python3"], &["-m", "vllm.entrypoints.openai.api_server"], true)]
    #[case(&["vllm"], &[], false)]
    #[case(&["vllm", "bench"], &["serve"], false)]
    #[case(&["vllm", "serve", "m1", "--"], &[], false)]
    #[case(&["/bin/sh", "-c"], &["exec vllm serve m1"], false)]
    #[case(&["bash", "-c", "vllm serve m1"], &[], false)]
    #[case(&["env", "A=1", "vllm", "serve"], &[], false)]
    #[case(&["/entrypoint.sh", "vllm", "serve"], &[], false)]
    #[case(&["python3", "serve.py"], &[], false)]
    #[case(&["python3", "-m", "vllm.entrypointsx"], &[], false)]
    #[case(&["python3", "-m", "my.vllm.entrypoints"], &[], false)]
    #[case(&["python3", "-c", "import vllm"], &[], false)]
    #[case(&["pythonic", "-m", "vllm.entrypoints.openai.api_server"], &[], false)]
    #[case(&["xvllm", "serve"], &[], false)]
    #[case(&[""], &[], false)]
    fn only_vllms_own_commands_take_appended_arguments(
        #[case] command: &[&str],
        #[case] args: &[&str],
        #[case] expected: bool,
    ) {
        assert_eq!(takes_arguments(command, args), expected, "{command:?} {args:?}");
    }
}
