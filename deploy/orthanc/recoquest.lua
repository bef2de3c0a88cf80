-- Has recoquest's workers take a study over as soon as it is stable: no instance came for "StableAge" seconds.
-- The address of the collection's studies and a key with the role curator in that collection are in the section
-- "Recoquest" of Orthanc's configuration. Where "Note" is true there, a note of similar cases comes into the
-- study: the key needs the role judge, too, and the service the setting RECOQUEST_PACS_WRITE_BACK.

function OnStableStudy(studyId, tags, metadata)
  local recoquest = GetOrthancConfiguration()["Recoquest"]
  local headers = { ["Authorization"] = "Bearer " .. recoquest["Key"] }
  local address = recoquest["Studies"] .. "/" .. tags["StudyInstanceUID"] .. "/index"
  if recoquest["Note"] then
    address = address .. "?note=true"
  end
  local reached, answer = pcall(HttpPost, address, "", headers)
  if not reached or answer == nil then
    print("recoquest was not told of the study " .. studyId .. ": the next whole sync brings it over")
  end
end
