//! The enrolment line, which pairs a terminal with a gateway.
//!
//! The line carries the gateway's address and key, and the seed of a one-time key
//! that the gateway has put on its list. The terminal makes an identity of its
//! own, connects with the one-time key, and asks to be enrolled in its place. So
//! the terminal's private key never leaves the terminal, the line is worth nothing
//! once used, and even this first conversation is authenticated at both ends.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::key::Identity;
use crate::target::Target;
use bentpipe_quic::fingerprint::Fingerprint;

const SCHEME: &str = "bentpipe";

/// What `bentpipe gateway init` prints and `bentpipe terminal join` takes.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrolmentLine {
    /// Where the gateway is reached.
    pub gateway: Target,
    /// The key that it must show.
    pub gateway_key: Fingerprint,
    secret: [u8; 32],
}

/// Why a text is not an enrolment line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not an enrolment line: {0}; it is the one line that `bentpipe gateway init` printed, starting with \"bentpipe://\", and has to be given whole"
)]
pub struct EnrolmentLineError(String);

impl EnrolmentLine {
    /// A new line with 32 secret random bytes.
    pub fn new(gateway: Target, gateway_key: Fingerprint, secret: [u8; 32]) -> Self {
        Self {
            gateway,
            gateway_key,
            secret,
        }
    }

    /// The one-time identity that the line stands for.
    pub fn one_time_identity(&self) -> Identity {
        Identity::from_seed(&self.secret)
    }
}

impl FromStr for EnrolmentLine {
    type Err = EnrolmentLineError;
    fn from_str(text: &str) -> Result<Self, EnrolmentLineError> {
        let error = |why: &str| EnrolmentLineError(why.to_owned());
        let uri: http::Uri = text.trim().parse().map_err(|_| error("it is not a URI"))?;
        if uri.scheme_str() != Some(SCHEME) {
            return Err(error("it does not start with \"bentpipe://\""));
        }
        let authority = uri
            .authority()
            .ok_or_else(|| error("the gateway's address is missing"))?;
        let gateway = authority
            .as_str()
            .parse()
            .map_err(|e| EnrolmentLineError(format!("{e}")))?;
        let field = |name: &str| {
            uri.query()
                .into_iter()
                .flat_map(|query| query.split('&'))
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(|| EnrolmentLineError(format!("its part {name:?} is missing")))
        };
        let gateway_key = format!("sha256:{}", field("key")?)
            .parse()
            .map_err(|_| error("the gateway's key in it is damaged"))?;
        let secret = URL_SAFE_NO_PAD
            .decode(field("secret")?)
            .ok()
            .and_then(|secret| secret.try_into().ok())
            .ok_or_else(|| error("the secret in it is damaged"))?;
        Ok(Self {
            gateway,
            gateway_key,
            secret,
        })
    }
}

impl fmt::Display for EnrolmentLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.gateway_key.to_string();
        let key = key.trim_start_matches("sha256:");
        let secret = URL_SAFE_NO_PAD.encode(self.secret);
        write!(
            out,
            "{SCHEME}://{}/enrol?key={key}&secret={secret}",
            self.gateway
        )
    }
}

impl fmt::Debug for EnrolmentLine {
    /// Without the secret, so that no log has it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EnrolmentLine({} {})", self.gateway, self.gateway_key)
    }
}
