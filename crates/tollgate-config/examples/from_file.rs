//! Reads policies from the file that is given, or from one with a mistake.

use tollgate::MemoryStore;
use tollgate_config::Config;

const MISTAKE: &str = r#"
[[policy]]
name = "search"
key = "header:x-api-key"
limit = 30
window = "60s"
algorithm = "sliding_log"
burst = 10
"#;

fn main() {
    let config = match std::env::args().nth(1) {
        Some(path) => Config::from_file(path),
        None => Config::from_toml(MISTAKE),
    };
    match config.and_then(|config| config.layer(MemoryStore::new())) {
        Ok(layer) => println!("{layer:?}"),
        Err(error) => println!("{error:#}"),
    }
}
