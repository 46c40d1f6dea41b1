package virtualmachineinstance

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// maxInline is how many bytes of a document may be in the VMI itself, which goes to all who
// watch it.
const maxInline = 2048

func cloudInit(source *virtv1.CloudInitNoCloudSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	user := count(source.UserDataSecretRef != nil, source.UserData != "", source.UserDataBase64 != "")
	network := count(source.NetworkDataSecretRef != nil, source.NetworkData != "", source.NetworkDataBase64 != "")
	if user > 1 {
		errs = append(errs, field.Invalid(at, "", fmt.Sprintf("%s must have only one userdatasource set.", at)))
	}
	if network > 1 {
		errs = append(errs, field.Invalid(at, "", fmt.Sprintf("%s must have only one networkdata source set.", at)))
	}
	if user+network == 0 {
		errs = append(errs, field.Invalid(at, "", fmt.Sprintf("%s must have at least one userdatasource or one networkdatasource set.", at)))
	}
	errs = append(errs, inline(at, "userDataBase64", source.UserDataBase64, source.UserData, "%s userdata exceeds %d byte limit. Should use UserDataSecretRef for larger data.")...)
	errs = append(errs, inline(at, "networkDataBase64", source.NetworkDataBase64, source.NetworkData, "%s networkdata exceeds %d byte limit. Should use NetworkDataSecretRef for larger data.")...)
	for _, ref := range []struct {
		name  string
		unset bool
	}{
		{"secretRef", source.UserDataSecretRef != nil && source.UserDataSecretRef.Name == ""},
		{"networkDataSecretRef", source.NetworkDataSecretRef != nil && source.NetworkDataSecretRef.Name == ""},
	} {
		if ref.unset {
			errs = append(errs, field.Required(at.Child(ref.name, "name"), "name the Secret"))
		}
	}
	return errs
}

// inline checks a document that is in the VMI itself, as text or encoded in the field name.
// What is wrong with it is said without a word of it.
func inline(at *field.Path, name, encoded, text, tooLong string) field.ErrorList {
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return field.ErrorList{field.Invalid(at.Child(name), "…", fmt.Sprintf("%s is not a valid base64 value.", at.Child(name)))}
	}
	if max(len(decoded), len(text)) > maxInline {
		return field.ErrorList{field.Invalid(at, "…", fmt.Sprintf(tooLong, at, maxInline))}
	}
	return nil
}
