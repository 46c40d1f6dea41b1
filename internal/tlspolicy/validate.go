package tlspolicy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Names of one cipher that goes with Slipway's certificates, by the IANA and by OpenSSL.
const (
	example        = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
	exampleOpenSSL = "ECDHE-ECDSA-AES128-GCM-SHA256"
)

// ValidateKubeVirt returns what is wrong with tlsConfiguration of the KubeVirt object, which is at path and may be nil.
func ValidateKubeVirt(config *virtv1.TLSConfiguration, path *field.Path) field.ErrorList {
	if config == nil {
		return nil
	}
	errs := version(string(config.MinTLSVersion), path)
	at := path.Child("ciphers")
	switch {
	case len(errs) > 0 || len(config.Ciphers) == 0:
		return errs
	case config.MinTLSVersion == "" || config.MinTLSVersion == virtv1.VersionTLS13:
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("You cannot specify ciphers when %s is empty or VersionTLS13", path.Child("minTLSVersion")))}
	}
	for i, name := range config.Ciphers {
		if _, known := ciphers()[name]; !known {
			errs = append(errs, field.Invalid(at.Index(i), name, name+" is not a valid cipher; write names such as "+example))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return serves(OfKubeVirt(config), at, config.Ciphers, example)
}

// ValidateProfile returns what is wrong with tlsSecurityProfile of the CDI or the HyperConverged object, which is at path and
// may be nil.
func ValidateProfile(profile *cdiv1.TLSSecurityProfile, path *field.Path) field.ErrorList {
	if profile == nil {
		return nil
	}
	types := []string{string(cdiv1.TLSProfileOldType), string(cdiv1.TLSProfileIntermediateType), string(cdiv1.TLSProfileModernType), string(cdiv1.TLSProfileCustomType)}
	if !slices.Contains(types, string(profile.Type)) {
		return field.ErrorList{field.NotSupported(path.Child("type"), string(profile.Type), types)}
	}
	var errs field.ErrorList
	for of, set := range map[cdiv1.TLSProfileType]bool{
		cdiv1.TLSProfileOldType: profile.Old != nil, cdiv1.TLSProfileIntermediateType: profile.Intermediate != nil,
		cdiv1.TLSProfileModernType: profile.Modern != nil, cdiv1.TLSProfileCustomType: profile.Custom != nil,
	} {
		if set && of != profile.Type {
			at := path.Child(strings.ToLower(string(of)))
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("the type is %s; remove it, or make that %s", profile.Type, of)))
		}
	}
	switch {
	case len(errs) > 0 || profile.Type != cdiv1.TLSProfileCustomType:
		return errs
	case profile.Custom == nil:
		return field.ErrorList{field.Required(path.Child("custom"), "the type is Custom; write its minTLSVersion and ciphers")}
	}
	return custom(&profile.Custom.TLSProfileSpec, path.Child("custom"))
}

func custom(spec *cdiv1.TLSProfileSpec, path *field.Path) field.ErrorList {
	if spec.MinTLSVersion == "" {
		return field.ErrorList{field.Required(path.Child("minTLSVersion"), "it is one of "+strings.Join(versionNames(), ", "))}
	}
	errs := version(string(spec.MinTLSVersion), path)
	at := path.Child("ciphers")
	switch {
	case len(errs) > 0:
		return errs
	case spec.MinTLSVersion == cdiv1.VersionTLS13 && len(spec.Ciphers) > 0:
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("You cannot specify ciphers when %s is VersionTLS13", path.Child("minTLSVersion")))}
	case spec.MinTLSVersion == cdiv1.VersionTLS13:
		return nil
	case len(spec.Ciphers) == 0:
		return field.ErrorList{field.Required(at, "You must specify at least one cipher")}
	}
	for i, name := range spec.Ciphers {
		if _, _, known := ofProfile(name); !known {
			errs = append(errs, field.Invalid(at.Index(i), name, name+" is not a valid cipher; write OpenSSL's names, such as "+exampleOpenSSL))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return serves(OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileCustomType, Custom: &cdiv1.CustomTLSProfile{TLSProfileSpec: *spec}}), at, spec.Ciphers, exampleOpenSSL)
}

func version(name string, path *field.Path) field.ErrorList {
	if _, known := versions[name]; name == "" || known {
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("minTLSVersion"), name, versionNames())}
}

// serves refuses ciphers, which are at path, of which none can be agreed upon before TLS 1.3.
func serves(settings *Settings, at *field.Path, names []string, add string) field.ErrorList {
	if slices.ContainsFunc(settings.Ciphers, fits) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, strings.Join(names, ","), "none of them goes with Slipway's certificates, whose keys are ECDSA's, before TLS 1.3; add "+
		add+", or take VersionTLS13 as the least version, and no ciphers")}
}
