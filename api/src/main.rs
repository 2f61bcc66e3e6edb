//! Lists a crate's public API, an item a line, from the JSON that rustdoc makes of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(json) = std::env::args_os().nth(1) else {
        eprintln!("give the path of rustdoc's JSON");
        return ExitCode::FAILURE;
    };
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => api.items().for_each(|item| println!("{item}")),
        Err(error) => {
            eprintln!("{error}; rustdoc's JSON is of another version than the crate public-api reads");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
