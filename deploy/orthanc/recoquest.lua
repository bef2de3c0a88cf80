-- Has recoquest's workers take a study over as soon as it is stable: no instance came for "StableAge" seconds.
-- The address of the collection's studies and a key with the role curator in that collection are in the section
-- "Recoquest" of Orthanc's configuration.

function OnStableStudy(studyId, tags, metadata)
  local recoquest = GetOrthancConfiguration()["Recoquest"]
  local headers = { ["Authorization"] = "Bearer " .. recoquest["Key"] }
  local address = recoquest["Studies"] .. "/" .. tags["StudyInstanceUID"] .. "/index"
  local reached, answer = pcall(HttpPost, address, "", headers)
  if not reached or answer == nil then
    print("recoquest was not told of the study " .. studyId .. ": the next whole sync brings it over")
  end
end
