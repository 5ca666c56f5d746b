//! Every claim holds, and the document says so.

use bentpipe_link_validate::{self as validate, Presets};

#[test]
fn every_claim_holds_and_the_document_is_up_to_date() {
    let claims = validate::claims(&Presets::shipped());
    let failing: Vec<_> = claims.iter().filter(|claim| !claim.holds).collect();
    assert!(failing.is_empty(), "{failing:#?}");
    let path = format!("{}/../../docs/validation.md", env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        document,
        validate::markdown(&claims),
        "write it again: bentpipe link validate --output docs/validation.md"
    );
}
