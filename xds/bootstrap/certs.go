// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/grpclog"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// CertFiles names the files of TLS credentials: the configuration of "tls"
// channel credentials (A65) and of the "file_watcher" certificate provider
// (A29).
type CertFiles struct {
	// CertificateFile and PrivateKeyFile hold the client's identity in PEM
	// format. Either both are set or none is.
	CertificateFile, PrivateKeyFile string
	// CACertificateFile holds the certificates that servers are verified by,
	// in PEM format; if it is empty, those of the system are used.
	CACertificateFile string
	// RefreshInterval is the age from which the files are read anew; always
	// positive.
	RefreshInterval time.Duration
}

const defaultRefreshInterval = 10 * time.Minute

type certFilesDoc struct {
	Certificate     string `json:"certificate_file,omitempty"`
	PrivateKey      string `json:"private_key_file,omitempty"`
	CACertificate   string `json:"ca_certificate_file,omitempty"`
	RefreshInterval string `json:"refresh_interval"`
}

func (f CertFiles) document() certFilesDoc {
	interval := fmt.Sprintf("%d.%09d", f.RefreshInterval/time.Second, f.RefreshInterval%time.Second)
	interval = strings.TrimSuffix(strings.TrimRight(interval, "0"), ".") + "s"
	return certFilesDoc{f.CertificateFile, f.PrivateKeyFile, f.CACertificateFile, interval}
}

// certFiles reads an object with the fields of CertFiles, all optional. It does
// not look at the files, which may be written after the process has started.
func (p *parse) certFiles(config value) CertFiles {
	f := CertFiles{RefreshInterval: defaultRefreshInterval}
	if config.v == nil || !p.isObject(config, `write an object such as {"ca_certificate_file": "<path>"}`) {
		return f
	}
	cert, key := config.field("certificate_file"), config.field("private_key_file")
	f.CertificateFile, f.PrivateKeyFile = p.text(cert), p.text(key)
	f.CACertificateFile = p.text(config.field("ca_certificate_file"))
	switch {
	case cert.v != nil && key.v == nil:
		p.fail(key, "is required with certificate_file, and missing", "set it to the path of the certificate's key, or remove certificate_file")
	case cert.v == nil && key.v != nil:
		p.fail(cert, "is required with private_key_file, and missing", "set it to the path of the key's certificate, or remove private_key_file")
	case (f.CertificateFile == "") != (f.PrivateKeyFile == ""):
		p.fail(config, "certificate_file and private_key_file must both be paths or both be empty", "set both, or remove both")
	}
	if interval := config.field("refresh_interval"); interval.v != nil {
		const fix = `write seconds, such as "600s" or "0.5s"`
		var d durationpb.Duration
		if err := protojson.Unmarshal(canonical(interval.v), &d); err != nil {
			p.fail(interval, "must be a duration in the JSON format of google.protobuf.Duration", fix)
		} else if d.AsDuration() <= 0 {
			p.fail(interval, "must be positive", fix)
		} else {
			f.RefreshInterval = d.AsDuration()
		}
	}
	return f
}

// Certs is what the files of a CertFiles hold.
type Certs struct {
	// Roots verify the server; nil stands for those of the system.
	Roots *x509.CertPool
	// Identity is the client's certificate and key; nil if it has none.
	Identity *tls.Certificate
}

// A CertLoader reads the files of a CertFiles, and reads them again when what
// it has is older than RefreshInterval and somebody asks.
//
// There is no goroutine that watches files, as grpc's file_watcher has: certs
// are needed at handshakes only, which are rare, so an idle client costs
// nothing and there is nothing to close. It is safe for concurrent use.
type CertLoader struct {
	files CertFiles

	mu     sync.Mutex // held while reading, so that one handshake reads for all
	certs  *Certs     // the last that could be read; nil at first
	loaded time.Time
}

// NewCertLoader returns a loader that has not read anything yet.
func NewCertLoader(files CertFiles) *CertLoader { return &CertLoader{files: files} }

var logger = grpclog.Component("xdslb")

// Load returns the current certificates. If the files cannot be read, or are
// in the middle of being replaced, it returns those it read last and tries
// again next time; it fails only if it never read any. The result is shared,
// and must not be modified.
func (l *CertLoader) Load() (*Certs, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.certs != nil && time.Since(l.loaded) < l.files.RefreshInterval {
		return l.certs, nil
	}
	certs, err := l.files.read()
	if err == nil {
		l.certs, l.loaded = certs, time.Now()
	} else if l.certs != nil {
		logger.Warningf("Keeping the TLS files read at %v: %v", l.loaded.Format(time.RFC3339), err)
		return l.certs, nil
	}
	return certs, err
}

func (f CertFiles) read() (*Certs, error) {
	certs := &Certs{}
	if f.CACertificateFile != "" {
		pem, err := os.ReadFile(f.CACertificateFile)
		if err != nil {
			return nil, fmt.Errorf("xds: reading ca_certificate_file: %w", err)
		}
		certs.Roots = x509.NewCertPool()
		if !certs.Roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("xds: ca_certificate_file %s holds no certificate in PEM format", f.CACertificateFile)
		}
	}
	if f.CertificateFile != "" {
		identity, err := tls.LoadX509KeyPair(f.CertificateFile, f.PrivateKeyFile)
		if err != nil {
			return nil, fmt.Errorf("xds: reading certificate_file %s and private_key_file %s: %w", f.CertificateFile, f.PrivateKeyFile, err)
		}
		certs.Identity = &identity
	}
	return certs, nil
}
