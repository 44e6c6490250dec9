/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package pki creates the keys and certificates of one local cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is longer than any local cluster lives. Only the cluster's directory trusts it.
const lifetime = 10 * 365 * 24 * time.Hour

// Pair is a certificate and its private key, PEM encoded.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Authority signs the certificates of a cluster.
type Authority struct {
	directory   string
	certificate *x509.Certificate
	key         crypto.Signer
}

// Open loads the authority of a directory. The first call creates it.
func Open(directory string) (*Authority, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("making %s: %w", directory, err)
	}
	a := &Authority{directory: directory}
	pair, err := a.pair("ca", func() (Pair, error) {
		return issue(&x509.Certificate{
			Subject:               pkix.Name{CommonName: "localcluster-ca"},
			KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			BasicConstraintsValid: true,
			IsCA:                  true,
		}, nil, nil)
	})
	if err != nil {
		return nil, err
	}
	return a, a.load(pair)
}

func (a *Authority) load(pair Pair) error {
	block, _ := pem.Decode(pair.Certificate)
	keyBlock, _ := pem.Decode(pair.Key)
	if block == nil || keyBlock == nil {
		return fmt.Errorf("parsing the certificate authority in %s: not PEM", a.directory)
	}
	var err error
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("parsing the certificate authority: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return fmt.Errorf("parsing the authority's key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return errors.New("parsing the authority's key: it cannot sign")
	}
	a.key = signer
	return nil
}

// CertificateFile is the path of the authority's certificate.
func (a *Authority) CertificateFile() string { return a.File("ca.crt") }

// File is the path of a file in the authority's directory.
func (a *Authority) File(name string) string { return filepath.Join(a.directory, name) }

// Certificate is the authority's certificate, PEM encoded.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Server returns name.crt and name.key for the given hosts, and creates them if needed.
func (a *Authority) Server(name string, hosts []string) (Pair, error) {
	return a.pair(name, func() (Pair, error) {
		template := &x509.Certificate{
			Subject:     pkix.Name{CommonName: name},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, host)
			}
		}
		return issue(template, a.certificate, a.key)
	})
}

// Client returns name.crt and name.key for the user in the groups, and creates them if needed.
func (a *Authority) Client(name, user string, groups ...string) (Pair, error) {
	return a.pair(name, func() (Pair, error) {
		return issue(&x509.Certificate{
			Subject:     pkix.Name{CommonName: user, Organization: groups},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, a.certificate, a.key)
	})
}

// SigningKey creates name.key and name.pub, if needed, for service account tokens.
func (a *Authority) SigningKey(name string) error {
	if _, err := os.Stat(a.File(name + ".pub")); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("making the key %s: %w", name, err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", name, err)
	}
	if err := os.WriteFile(a.File(name+".key"), private, 0o600); err != nil {
		return fmt.Errorf("writing the key %s: %w", name, err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	if err := os.WriteFile(a.File(name+".pub"), encoded, 0o644); err != nil {
		return fmt.Errorf("writing the key %s: %w", name, err)
	}
	return nil
}

// pair reads name.crt and name.key. If they do not exist, it creates them with the given function. It writes the
// certificate last, so that an existing certificate means that both exist.
func (a *Authority) pair(name string, generate func() (Pair, error)) (Pair, error) {
	certificateFile, keyFile := a.File(name+".crt"), a.File(name+".key")
	certificate, err := os.ReadFile(certificateFile)
	if err == nil {
		key, err := os.ReadFile(keyFile)
		if err != nil {
			return Pair{}, fmt.Errorf("reading the key %s: %w", name, err)
		}
		return Pair{Certificate: certificate, Key: key}, nil
	}
	pair, err := generate()
	if err != nil {
		return Pair{}, fmt.Errorf("making the certificate %s: %w", name, err)
	}
	if err := os.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return Pair{}, fmt.Errorf("writing the key %s: %w", name, err)
	}
	if err := os.WriteFile(certificateFile, pair.Certificate, 0o644); err != nil {
		return Pair{}, fmt.Errorf("writing the certificate %s: %w", name, err)
	}
	return pair, nil
}

// issue signs the template with the parent. Without a parent, the certificate signs itself.
func issue(template, parent *x509.Certificate, signer crypto.Signer) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generating a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, fmt.Errorf("choosing a serial number: %w", err)
	}
	// One hour earlier, in case the clock is set back while the cluster runs.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(lifetime)
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("signing: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), Key: encoded}, nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}
