package certs

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Shortest is the least that certificates may be valid, and the least time before their end.
const Shortest = 10 * time.Minute

// ValidateKubeVirt returns what is wrong with certificateRotateStrategy.selfSigned of the KubeVirt object, which is at path
// and may be nil.
func ValidateKubeVirt(asked *virtv1.KubeVirtSelfSignConfiguration, path *field.Path) field.ErrorList {
	if asked == nil {
		return nil
	}
	old := asked.CARotateInterval != nil || asked.CertRotateInterval != nil || asked.CAOverlapInterval != nil
	if old && (asked.CA != nil || asked.Server != nil) {
		return field.ErrorList{field.Forbidden(path, "caRotateInterval, certRotateInterval and caOverlapInterval are deprecated and conflict with CertConfig defined rotation parameters")}
	}
	lifetimes := rotation(asked)
	ca, server := path.Child("ca"), path.Child("server")
	at := places{ca.Child("duration"), ca.Child("renewBefore"), server.Child("duration"), server.Child("renewBefore")}
	if old {
		at.ca, at.caBefore, at.leaf = path.Child("caRotateInterval"), path.Child("caOverlapInterval"), path.Child("certRotateInterval")
	}
	return lifetimes.validate(at)
}

// ValidateCDI returns what is wrong with certConfig of the CDI object, which is at path and may be nil.
func ValidateCDI(asked *cdiv1.CDICertConfig, path *field.Path) field.ErrorList {
	if asked == nil {
		return nil
	}
	at := func(leaf string) places {
		ca, own := path.Child("ca"), path.Child(leaf)
		return places{ca.Child("duration"), ca.Child("renewBefore"), own.Child("duration"), own.Child("renewBefore")}
	}
	if errs := ofCDI(asked, false).validate(at("server")); len(errs) > 0 {
		return errs
	}
	return ofCDI(asked, true).validate(at("client"))
}

// places are where lifetimes were asked for.
type places struct{ ca, caBefore, leaf, leafBefore *field.Path }

func (l Lifetimes) validate(at places) field.ErrorList {
	var errs field.ErrorList
	for _, one := range []struct {
		duration, before time.Duration
		at, atBefore     *field.Path
	}{{l.CA, l.CARenewBefore, at.ca, at.caBefore}, {l.Serving, l.ServingRenewBefore, at.leaf, at.leafBefore}} {
		switch {
		case one.duration < Shortest:
			errs = append(errs, field.Invalid(one.at, one.duration.String(), fmt.Sprintf("it is at least %s", Shortest)))
		case one.before >= one.duration:
			errs = append(errs, field.Invalid(one.atBefore, one.before.String(), fmt.Sprintf("it must be less than %s, which is %s: certificates would be renewed all the time", one.at, one.duration)))
		case one.before <= 0:
			errs = append(errs, field.Invalid(one.atBefore, one.before.String(), "certificates must be renewed before they end"))
		}
	}
	if len(errs) == 0 && l.Serving > l.CA {
		errs = append(errs, field.Invalid(at.leaf, l.Serving.String(), fmt.Sprintf("a certificate does not last longer than its authority; make it at most %s, or write a longer %s", l.CA, at.ca)))
	}
	return errs
}
