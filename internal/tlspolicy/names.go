package tlspolicy

import (
	"crypto/tls"
	"maps"
	"slices"
	"strings"
	"sync"

	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// versions are the names that the API has for versions of TLS.
var versions = map[string]uint16{
	string(virtv1.VersionTLS10): tls.VersionTLS10,
	string(virtv1.VersionTLS11): tls.VersionTLS11,
	string(virtv1.VersionTLS12): tls.VersionTLS12,
	string(virtv1.VersionTLS13): tls.VersionTLS13,
}

func versionNames() []string { return slices.Sorted(maps.Keys(versions)) }

// versionName is the API's name of version.
func versionName(version uint16) string {
	for name, known := range versions {
		if known == version {
			return name
		}
	}
	return ""
}

// ciphers are all that Go knows, by the names of the IANA.
var ciphers = sync.OnceValue(func() map[string]uint16 {
	all := map[string]uint16{}
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		all[suite.Name] = suite.ID
	}
	return all
})

// openSSL are the ciphers that Go knows, by OpenSSL's names, where these are others. Of TLS 1.3 they are the same.
var openSSL = map[string]uint16{
	"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-ECDSA-AES128-SHA256":     tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,
	"ECDHE-ECDSA-AES128-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
	"ECDHE-ECDSA-AES256-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
	"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-RSA-CHACHA20-POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-RSA-AES128-SHA256":       tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,
	"ECDHE-RSA-AES128-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
	"ECDHE-RSA-AES256-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,
	"AES128-GCM-SHA256":             tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
	"AES256-GCM-SHA384":             tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
	"AES128-SHA256":                 tls.TLS_RSA_WITH_AES_128_CBC_SHA256,
	"AES128-SHA":                    tls.TLS_RSA_WITH_AES_128_CBC_SHA,
	"AES256-SHA":                    tls.TLS_RSA_WITH_AES_256_CBC_SHA,
	"DES-CBC3-SHA":                  tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA,
}

// ofProfile is the cipher that a profile calls name. Of those that the API's own profiles name, Go lacks some.
func ofProfile(name string) (cipher uint16, has, known bool) {
	if cipher, has = openSSL[name]; !has && strings.HasPrefix(name, "TLS_") {
		cipher, has = ciphers()[name]
		has = has && isOf13(cipher)
	}
	return cipher, has, has || slices.Contains(cdiv1.TLSProfiles[cdiv1.TLSProfileOldType].Ciphers, name)
}

// isOf13 says whether cipher is one of TLS 1.3, of which servers take all, whatever is set.
func isOf13(cipher uint16) bool {
	return cipher == tls.TLS_AES_128_GCM_SHA256 || cipher == tls.TLS_AES_256_GCM_SHA384 || cipher == tls.TLS_CHACHA20_POLY1305_SHA256
}

// fits says whether cipher goes with the keys of Slipway's certificates, which are ECDSA's, before TLS 1.3.
func fits(cipher uint16) bool {
	return strings.HasPrefix(tls.CipherSuiteName(cipher), "TLS_ECDHE_ECDSA_")
}
