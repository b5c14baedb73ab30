//! The ciphers of the providers, with their payloads as upstream lays them out.
//!
//! `aescbc`: an IV of 16 bytes and whole blocks (PKCS#7), bound to nothing; `aesgcm`: a nonce of 12 bytes, bound to the place; `secretbox`: a
//! nonce of 24 bytes.

use aes_gcm::AesGcm;
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::aes::{Aes128, Aes192, Aes256};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyInit, KeyIvInit};
use crypto_secretbox::XSalsa20Poly1305;
use ring::rand::{SecureRandom, SystemRandom};

const IV: usize = 16;
const GCM_NONCE: usize = 12;
const BOX_NONCE: usize = 24;

/// A value could not be encrypted or decrypted; why is nobody's business.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsealed;

/// The key of an AES cipher.
pub(super) enum Aes {
    Short([u8; 16]),
    Middle([u8; 24]),
    Long([u8; 32]),
}

/// A cipher with its key.
pub(super) enum Cipher {
    Cbc(Aes),
    Gcm(Box<Gcm>),
    Secretbox(Box<XSalsa20Poly1305>),
}

/// AES in Galois counter mode.
pub(super) enum Gcm {
    Short(AesGcm<Aes128, U12>),
    Middle(AesGcm<Aes192, U12>),
    Long(AesGcm<Aes256, U12>),
}

/// Lengths of AES's keys.
pub(super) const AES_KEYS: &[usize] = &[16, 24, 32];
/// Lengths of secretbox' keys.
pub(super) const BOX_KEYS: &[usize] = &[32];

impl Aes {
    fn new(key: &[u8]) -> Option<Self> {
        let short = || key.try_into().ok().map(Self::Short);
        let middle = || key.try_into().ok().map(Self::Middle);
        short().or_else(middle).or_else(|| key.try_into().ok().map(Self::Long))
    }
}

fn random<const N: usize>() -> Result<[u8; N], Unsealed> {
    let mut bytes = [0_u8; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Unsealed)?;
    Ok(bytes)
}

impl Cipher {
    /// AES in cipher block chaining, with a key of 16, 24 or 32 bytes.
    pub(super) fn cbc(key: &[u8]) -> Option<Self> {
        Aes::new(key).map(Self::Cbc)
    }

    /// AES in Galois counter mode, with a key of 16, 24 or 32 bytes.
    pub(super) fn gcm(key: &[u8]) -> Option<Self> {
        let gcm = match Aes::new(key)? {
            Aes::Short(key) => Gcm::Short(KeyInit::new(&key.into())),
            Aes::Middle(key) => Gcm::Middle(KeyInit::new(&key.into())),
            Aes::Long(key) => Gcm::Long(KeyInit::new(&key.into())),
        };
        Some(Self::Gcm(Box::new(gcm)))
    }

    /// XSalsa20 and Poly1305, with a key of 32 bytes.
    pub(super) fn secretbox(key: &[u8]) -> Option<Self> {
        XSalsa20Poly1305::new_from_slice(key).ok().map(Box::new).map(Self::Secretbox)
    }

    /// Encrypts a value that lies at this place.
    pub(super) fn seal(&self, value: &[u8], place: &[u8]) -> Result<Vec<u8>, Unsealed> {
        match self {
            Self::Cbc(aes) => {
                let iv: [u8; IV] = random()?;
                let sealed = match aes {
                    Aes::Short(key) => encrypt::<Aes128>(key, &iv, value),
                    Aes::Middle(key) => encrypt::<Aes192>(key, &iv, value),
                    Aes::Long(key) => encrypt::<Aes256>(key, &iv, value),
                };
                Ok([iv.as_slice(), &sealed?].concat())
            }
            Self::Gcm(gcm) => {
                let nonce: [u8; GCM_NONCE] = random()?;
                let payload = Payload { msg: value, aad: place };
                let sealed = match &**gcm {
                    Gcm::Short(aes) => aes.encrypt(&nonce.into(), payload),
                    Gcm::Middle(aes) => aes.encrypt(&nonce.into(), payload),
                    Gcm::Long(aes) => aes.encrypt(&nonce.into(), payload),
                };
                Ok([nonce.as_slice(), &sealed.map_err(|_| Unsealed)?].concat())
            }
            Self::Secretbox(secretbox) => {
                let nonce: [u8; BOX_NONCE] = random()?;
                let sealed = secretbox.encrypt(&nonce.into(), value).map_err(|_| Unsealed)?;
                Ok([nonce.as_slice(), &sealed].concat())
            }
        }
    }

    /// Decrypts a value that lies at this place.
    pub(super) fn open(&self, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, Unsealed> {
        match self {
            Self::Cbc(aes) => {
                let (iv, sealed) = sealed.split_first_chunk::<IV>().ok_or(Unsealed)?;
                match aes {
                    Aes::Short(key) => decrypt::<Aes128>(key, iv, sealed),
                    Aes::Middle(key) => decrypt::<Aes192>(key, iv, sealed),
                    Aes::Long(key) => decrypt::<Aes256>(key, iv, sealed),
                }
            }
            Self::Gcm(gcm) => {
                let (nonce, sealed) = sealed.split_first_chunk::<GCM_NONCE>().ok_or(Unsealed)?;
                let payload = Payload { msg: sealed, aad: place };
                match &**gcm {
                    Gcm::Short(aes) => aes.decrypt(nonce.into(), payload),
                    Gcm::Middle(aes) => aes.decrypt(nonce.into(), payload),
                    Gcm::Long(aes) => aes.decrypt(nonce.into(), payload),
                }
                .map_err(|_| Unsealed)
            }
            Self::Secretbox(secretbox) => {
                let (nonce, sealed) = sealed.split_first_chunk::<BOX_NONCE>().ok_or(Unsealed)?;
                secretbox.decrypt(nonce.into(), sealed).map_err(|_| Unsealed)
            }
        }
    }
}

fn encrypt<A>(key: &[u8], iv: &[u8; IV], value: &[u8]) -> Result<Vec<u8>, Unsealed>
where
    A: cbc::cipher::BlockCipher + BlockEncryptMut + KeyInit,
{
    let cipher = cbc::Encryptor::<A>::new_from_slices(key, iv).map_err(|_| Unsealed)?;
    Ok(cipher.encrypt_padded_vec_mut::<Pkcs7>(value))
}

fn decrypt<A>(key: &[u8], iv: &[u8; IV], sealed: &[u8]) -> Result<Vec<u8>, Unsealed>
where
    A: cbc::cipher::BlockCipher + BlockDecryptMut + KeyInit,
{
    let cipher = cbc::Decryptor::<A>::new_from_slices(key, iv).map_err(|_| Unsealed)?;
    cipher.decrypt_padded_vec_mut::<Pkcs7>(sealed).map_err(|_| Unsealed)
}
