//! What the compiler says of a program that lacks a feature, or whose keys are none.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

/// What `cargo check` prints about a program that depends on the crate without any features.
fn errors(name: &str, program: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the crate is there");
    let path = root.to_str().expect("UTF-8");
    let manifest = format!(
        "[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         http = \"1\"\ntollgate = {{ path = {path:?}, default-features = false }}\n"
    );
    fs::create_dir_all(folder.join("src")).expect("the folder can be written");
    fs::write(folder.join("Cargo.toml"), manifest).expect("the folder can be written");
    fs::write(folder.join("src/main.rs"), program).expect("the folder can be written");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the folder can be written");
    let cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["check", "--quiet", "--offline"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .stdin(Stdio::null())
        .output();
    String::from_utf8(cargo.expect("cargo runs").stderr).expect("text")
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_calendar_without_its_feature_had_no_methods_and_no_error_named_the_feature() {
    let program = "use tollgate::{Quota, policy::Calendar};\nfn main() { let _ = Calendar::daily(\"UTC\").map(|day| \
                   Quota::calendar_window(1, day)); }\n";
    let errors = errors("without-calendar", program);
    assert!(errors.contains("gated behind the `calendar` feature"), "{errors}");
    assert_eq!(errors.matches("\nerror").count() + usize::from(errors.starts_with("error")), 2, "{errors}");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_key_that_was_none_had_a_page_of_impls_and_not_a_word_of_what_a_key_is() {
    let wrong = [
        "|_: &Parts| 1.5",
        "|parts: &Parts| parts.headers.get(\"x-user\").cloned()",
        "async |_: &Parts| \"a\"",
        "(key::method(), NotClone)",
        "(key::method(), key::path(), key::host(), key::global(), key::bearer())",
        "\"x-api-key\"",
    ];
    let uses = wrong.map(|key| format!("    let _ = policy().key({key});\n")).concat();
    let program = format!(
        "use http::request::Parts;\nuse tollgate::{{Key, Policy, Quota, key}};\nuse tollgate::store::MaybeFuture;\n\
         struct NotClone;\nimpl key::KeyExtractor for NotClone {{\n    fn extract(&self, _: &Parts) -> \
         MaybeFuture<key::Extracted> {{\n        MaybeFuture::Ready(Key::new(\"a\", \"b\").into())\n    }}\n}}\n\
         fn policy() -> Policy {{ Policy::new(\"a\", Quota::per_hour(1)) }}\nfn main() {{\n{uses}}}\n"
    );
    let errors = errors("wrong-keys", &program);
    let each: Vec<&str> = errors.split("\n\n").filter(|error| error.starts_with("error[")).collect();
    assert_eq!(each.len(), wrong.len(), "{errors}");
    for error in each {
        assert!(error.starts_with("error[E0277]: expected a key extractor, found `"), "{error}");
        assert!(
            ["a closure returns a `Key`, `String`", "`Response<Bytes>`, `key::Ambiguous`", "needs `key::lookup`"]
                .iter()
                .all(|text| error.contains(text)),
            "{error}"
        );
        assert!(error.lines().count() <= 25, "{error}");
    }
}
