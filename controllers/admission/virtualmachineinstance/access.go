package virtualmachineinstance

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// access checks the access credentials, in the field's words.
func access(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, credential := range spec.AccessCredentials {
		at := path.Child("accessCredentials").Index(i)
		if count(credential.SSHPublicKey != nil, credential.UserPassword != nil) != 1 {
			errs = append(errs, field.Invalid(at, "", fmt.Sprintf("%s must have exactly one access credential type set", at)))
		}
		if key := credential.SSHPublicKey; key != nil {
			errs = append(errs, credentialSource(key.Source.Secret, at, at.Child("sshPublicKey"))...)
			errs = append(errs, keyMethod(spec, key.PropagationMethod, at)...)
		}
		if password := credential.UserPassword; password != nil {
			errs = append(errs, credentialSource(password.Source.Secret, at, at.Child("userPassword"))...)
			if password.PropagationMethod.QemuGuestAgent == nil {
				errs = append(errs, oneMethod(at, at.Child("userPassword", "propagationMethod")))
			}
		}
	}
	return errs
}

func credentialSource(secret *virtv1.AccessCredentialSecretSource, at, here *field.Path) field.ErrorList {
	here = here.Child("source")
	if secret == nil {
		return field.ErrorList{field.Invalid(here, "", fmt.Sprintf("%s must have exactly one source set", at))}
	}
	var errs field.ErrorList
	for _, message := range validation.IsDNS1123Subdomain(secret.SecretName) {
		errs = append(errs, field.Invalid(here.Child("secret", "secretName"), secret.SecretName, message))
	}
	return errs
}

func keyMethod(spec *virtv1.VirtualMachineInstanceSpec, method virtv1.SSHPublicKeyAccessCredentialPropagationMethod, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	here := at.Child("sshPublicKey", "propagationMethod")
	if count(method.ConfigDrive != nil, method.NoCloud != nil, method.QemuGuestAgent != nil) != 1 {
		errs = append(errs, oneMethod(at, here))
	}
	if method.ConfigDrive != nil && !slices.ContainsFunc(spec.Volumes, func(volume virtv1.Volume) bool { return volume.CloudInitConfigDrive != nil }) {
		errs = append(errs, field.Invalid(here, "", fmt.Sprintf("%s requires a configDrive volume to exist when the configDrive propagationMethod is in use.", at)))
	}
	if method.NoCloud != nil && !slices.ContainsFunc(spec.Volumes, func(volume virtv1.Volume) bool { return volume.CloudInitNoCloud != nil }) {
		errs = append(errs, field.Invalid(here, "", fmt.Sprintf("%s requires a noCloud volume to exist when the noCloud propagationMethod is in use.", at)))
	}
	if method.QemuGuestAgent != nil && len(method.QemuGuestAgent.Users) == 0 {
		errs = append(errs, field.Invalid(here.Child("qemuGuestAgent", "users"), "", fmt.Sprintf("%s requires at least one user to be present in the users list", at)))
	}
	return errs
}

func oneMethod(at, here *field.Path) *field.Error {
	return field.Invalid(here, "", fmt.Sprintf("%s must have exactly one propagationMethod set", at))
}
