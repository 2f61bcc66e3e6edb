use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use tollgate::Error;

/// An error as a response.
pub(crate) struct Failed(pub(crate) Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = if self.0.is_invalid() { StatusCode::BAD_REQUEST } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Json(json!({ "error": format!("{:#}", self.0) }))).into_response()
    }
}
