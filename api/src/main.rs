//! Lists a crate's public API, an item a line, from the JSON that rustdoc makes of it.
//!
//! At the end are the types that are not `Send` or not `Sync`, whatever their parameters are.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(json) = std::env::args_os().nth(1) else {
        eprintln!("give the path of rustdoc's JSON");
        return ExitCode::FAILURE;
    };
    let builder = public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).omit_auto_derived_impls(true);
    match (builder.clone().omit_auto_trait_impls(true).build(), builder.build()) {
        (Ok(api), Ok(all)) => {
            api.items().for_each(|item| println!("{item}"));
            let is_not = |line: &String, name: &str| line.contains(&format!(" !core::marker::{name} for "));
            let lines = all.items().map(ToString::to_string);
            lines.filter(|line| is_not(line, "Send") || is_not(line, "Sync")).for_each(|line| println!("{line}"));
        }
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("{error}; rustdoc's JSON is of another version than the crate public-api reads");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
