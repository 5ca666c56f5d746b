//! The gateway's certificate authority, for clients of other people's making: they go by
//! certificates of P-256 keys, which all TLS libraries have.

use bentpipe_tunnel::identity::Fingerprint;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use crate::failure::Failure;
use crate::files::Files;

/// An authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate that was issued.
pub struct Issued {
    /// It and the authority's, in PEM.
    pub chain: String,
    /// Its key, in PEM.
    pub private_key: String,
    /// What the gateway knows it by.
    pub key: Fingerprint,
}

impl Authority {
    /// The authority whose files lie beside the configuration; made when there are none.
    pub fn open(files: &Files) -> Result<Self, Failure> {
        let (certificate, key) = match files.authority()? {
            Some(both) => both,
            None => {
                let key = new_key()?;
                let certificate = params()
                    .self_signed(&key)
                    .map_err(anyhow::Error::from)?
                    .pem();
                let key = key.serialize_pem();
                files.write_authority(&certificate, &key)?;
                (certificate, key)
            }
        };
        let key = KeyPair::from_pem(&key).map_err(|_| {
            let wrong = "this is not a private key in PEM; restore it from a copy, or remove it and issue all certificates anew";
            Failure::file(&files.authority_key(), wrong)
        })?;
        Ok(Self {
            issuer: Issuer::new(params(), key),
            certificate,
        })
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for `name`: of a server that is reached by `hosts`, or else of a client.
    pub fn issue(&self, name: &str, hosts: &[String]) -> Result<Issued, Failure> {
        let key = new_key()?;
        let mut params = CertificateParams::new(hosts).map_err(|_| {
            let hosts = hosts.join(" ");
            Failure::Configuration(format!("{hosts}: give names and addresses of the gateway"))
        })?;
        params.distinguished_name = named(name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match hosts {
            [] => ExtendedKeyUsagePurpose::ClientAuth,
            _ => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(anyhow::Error::from)?;
        Ok(Issued {
            chain: certificate.pem() + &self.certificate,
            private_key: key.serialize_pem(),
            key: Fingerprint::of(certificate.der()).map_err(anyhow::Error::from)?,
        })
    }
}

fn new_key() -> Result<KeyPair, Failure> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(anyhow::Error::from)?)
}

fn named(name: &str) -> rcgen::DistinguishedName {
    let mut named = rcgen::DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

/// What every certificate of an authority says: only its key tells it from others.
fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("bentpipe gateway authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}
