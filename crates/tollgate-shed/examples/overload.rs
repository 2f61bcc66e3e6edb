//! Sends more requests at once than a fleet has slots for, and prints which of them are served.
//!
//! `cargo run -p tollgate-shed --example overload`

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{MemoryStore, Quota};
use tollgate_shed::{Class, FleetShedLayer, Shed};
use tower::{Layer, ServiceExt, service_fn};

#[tokio::main]
async fn main() -> Result<(), Infallible> {
    let layer = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(4), 0.5)
        .classify(|parts| if parts.uri.path() == "/charges" { Class::Critical } else { Class::from_parts(parts) });
    let handler = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("done".to_owned())) });
    let service = layer.layer(handler);

    let mut in_progress = Vec::new();
    for path in ["/reports", "/reports", "/reports", "/charges", "/charges", "/charges", "/reports"] {
        let request = Request::get(path).body(String::new()).expect("a request");
        let response = service.clone().oneshot(request).await?;
        if let Some(shed) = response.extensions().get::<Shed>() {
            let wait = response.headers()["retry-after"].to_str().expect("it is a number");
            println!("{path}: shed by {:?} as {:?}, retry after {wait} s", shed.name(), shed.class());
        } else {
            println!("{path}: served");
            // It holds its slot until the end of its body.
            in_progress.push(response);
        }
    }
    Ok(())
}
