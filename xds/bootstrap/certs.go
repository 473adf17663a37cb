// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// CertFiles names the files of TLS credentials: the configuration of "tls" channel credentials
// (A65) and of the "file_watcher" certificate provider (A29).
type CertFiles struct {
	// CertificateFile and PrivateKeyFile contain the client's identity in PEM format. Both are
	// set, or both are empty.
	CertificateFile, PrivateKeyFile string
	// CACertificateFile contains the certificates for verifying servers, in PEM format; if it
	// is empty, the system's are used.
	CACertificateFile string
	// SPIFFEBundleMapFile contains the certificates for verifying servers for each trust
	// domain, in SPIFFE's JSON format (A87). If it is not empty, CACertificateFile is ignored.
	SPIFFEBundleMapFile string
	// RefreshInterval is the age at which the files are read again; always positive.
	RefreshInterval time.Duration
}

const defaultRefreshInterval = 10 * time.Minute

type certFilesDoc struct {
	Certificate     string `json:"certificate_file,omitempty"`
	PrivateKey      string `json:"private_key_file,omitempty"`
	CACertificate   string `json:"ca_certificate_file,omitempty"`
	SPIFFEBundleMap string `json:"spiffe_trust_bundle_map_file,omitempty"`
	RefreshInterval string `json:"refresh_interval"`
}

func (f CertFiles) document() certFilesDoc {
	interval := fmt.Sprintf("%d.%09d", f.RefreshInterval/time.Second, f.RefreshInterval%time.Second)
	interval = strings.TrimSuffix(strings.TrimRight(interval, "0"), ".") + "s"
	return certFilesDoc{f.CertificateFile, f.PrivateKeyFile, f.CACertificateFile, f.SPIFFEBundleMapFile, interval}
}

// certFiles reads an object with the fields of CertFiles, all optional. It does not open the
// files, which may be written after the process has started.
func (p *parse) certFiles(config value) CertFiles {
	f := CertFiles{RefreshInterval: defaultRefreshInterval}
	if config.v == nil || !p.isObject(config, `write an object such as {"ca_certificate_file": "<path>"}`) {
		return f
	}
	p.only(config, "certificate_file", "private_key_file", "ca_certificate_file", "spiffe_trust_bundle_map_file", "refresh_interval")
	cert, key := config.field("certificate_file"), config.field("private_key_file")
	f.CertificateFile, f.PrivateKeyFile = p.text(cert), p.text(key)
	f.CACertificateFile = p.text(config.field("ca_certificate_file"))
	f.SPIFFEBundleMapFile = p.text(config.field("spiffe_trust_bundle_map_file"))
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
